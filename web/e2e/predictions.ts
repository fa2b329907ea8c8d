/** Predictions of the page's own worker, with all digits. */
import type { Page } from "playwright-core";
import type { MadeFile } from "./studio";

/** Probabilities by file and class, of the model that the page has in use. */
export async function predictAll(
  page: Page,
  files: MadeFile[],
): Promise<Map<string, Map<string, number>>> {
  const sent = files.map(({ name, buffer }) => ({ name, base64: buffer.toString("base64") }));
  const found = await page.evaluate(inPage, sent);
  return new Map(found.map(([name, classes]) => [name, new Map(classes)]));
}

/** Runs in the page. */
async function inPage(
  files: { name: string; base64: string }[],
): Promise<[string, [string, number][]][]> {
  const settled = <T>(request: IDBRequest<T>) =>
    new Promise<T>((resolve, reject) => {
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error!);
    });
  const database = await settled(indexedDB.open("pocketune-studio"));
  const read = (store: string, key: string) =>
    settled<Record<string, unknown>>(database.transaction(store).objectStore(store).get(key));
  const model = await read("model", "model");
  const { zip } = await read("kits", model["kitHash"] as string);
  database.close();

  const photos = files.map(({ base64 }) => {
    const bytes = Uint8Array.from(atob(base64), (sign) => sign.charCodeAt(0));
    return new Blob([bytes], { type: "image/png" });
  });
  const { files: built } = await (await fetch("site.json")).json();
  const script = Object.keys(built).find((name) => name.startsWith("worker-"))!;
  const worker = new Worker(script, { type: "module" });
  const answer = new Promise<{ probabilities: Float32Array }[]>((resolve, reject) => {
    worker.onmessage = ({ data }) => {
      if (data.kind === "predictions") resolve(data.predictions);
      if (data.kind === "error") reject(new Error(data.message));
    };
  });
  const { classes, parameters, known } = model;
  worker.postMessage({ kind: "open", model: { kit: zip, classes, parameters, known, threads: 1 } });
  worker.postMessage({ kind: "predict", id: 1, photos });
  const predictions = await answer;
  worker.terminate();
  return files.map(({ name }, i) => [
    name,
    (classes as string[]).map((label, k) => [label, predictions[i]!.probabilities[k]!]),
  ]);
}
