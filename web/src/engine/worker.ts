/** The worker of a run or of a model: everything that computes is here, off the page's thread. */
import { type Device, FinalError, type Job, type ModelJob, UserError } from "../contract";
import { readKit } from "../formats/kit";
import { openWorkerStore } from "../storage/worker";
import { Engine } from "./engine";
import { failure, type FromWorker, type Picture, type ToWorker, UNREAD } from "./messages";
import { readPixels } from "./pixels";
import { predict, predictPixels } from "./predict";
import type { Request } from "./run";
import { heapBytes, setUpRuntime } from "./session";
import { train } from "./train";
import { tryStep } from "./trial";

/** What computes the steps: the build makes a worker for each, with its runtime. */
declare const DEVICE: Device;

const RUNTIME = { wasm: "ort-wasm-simd-threaded", webgpu: "ort-wasm-simd-threaded.jspi" }[DEVICE];

let request: Request = "go";
let model: Promise<{ engine: Engine; job: ModelJob }> | null = null;

self.onmessage = async ({ data }: MessageEvent<ToWorker>) => {
  try {
    if (data.kind === "ask") request = data.request;
    else if (data.kind === "train") await run(data.job);
    else if (data.kind === "try") await tryOut(data.kit, data.threads);
    else if (data.kind === "open") await (model = open(data.model));
    else await answer(data.id, data.photos);
  } catch (error) {
    const message = failure(data.kind === "train" ? "The run" : "The prediction", error);
    say({ kind: "error", message, final: error instanceof FinalError });
  }
};
self.onmessageerror = () => say({ kind: "error", message: UNREAD, final: false });

async function run(job: Job): Promise<void> {
  say({ kind: "phase", phase: "opening" });
  await startRuntime(job.settings.threads);
  const kit = await readKit(job.kit);
  const start = job.start ?? { classes: kit.manifest.task.classes, parameters: kit.parameters };
  const store = await openWorkerStore(job.photos.database);
  const result = await train({
    kit,
    state: start.parameters,
    stateClasses: start.classes,
    classes: job.classes,
    settings: job.settings,
    photos: job.photos.photos,
    store,
    read: readPixels,
    emit: say,
    asked,
    heap: heapBytes,
    ...(job.resume && { resume: job.resume }),
  });
  store.close();
  if (!result) return say({ kind: "stopped" });
  say({ kind: "phase", phase: "done" });
  say({ kind: "done", result });
}

async function tryOut(kit: Uint8Array, threads: number): Promise<void> {
  await startRuntime(threads);
  say({ kind: "tried", trial: await tryStep(await readKit(kit)) });
}

async function open(job: ModelJob) {
  await startRuntime(job.threads);
  const kit = await readKit(job.kit);
  const engine = new Engine(kit, job.parameters, job.classes.length);
  // The graphs are opened before the first photo comes.
  await predictPixels(engine, null, new Uint8Array(3 * kit.manifest.size ** 2));
  return { engine, job };
}

/** One after the other: the runtime computes one graph at a time. */
let last: Promise<unknown> = Promise.resolve();

async function answer(id: number, photos: Picture[]): Promise<void> {
  const before = last;
  const found = (async () => {
    await before;
    const { engine, job } = await model!;
    return predict(engine, job.known, photos, readPixels);
  })();
  last = found.catch(() => undefined);
  const predictions = await found;
  for (const photo of photos) if (!(photo instanceof Blob)) photo.close();
  say({ kind: "predictions", id, predictions, heapBytes: heapBytes() });
}

/** What the user asks, after all messages that wait have been heard. */
async function asked(): Promise<Request> {
  await new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve(null);
    };
    port2.postMessage(null);
  });
  return request;
}

async function startRuntime(threads: number): Promise<void> {
  const loader = new URL(`${RUNTIME}.mjs`, import.meta.url).href;
  const wasm = await fetchUnzipped(new URL(`${RUNTIME}.wasm.gz`, import.meta.url).href);
  setUpRuntime(wasm, loader, self.crossOriginIsolated ? threads : 1, DEVICE);
}

async function fetchUnzipped(address: string): Promise<Uint8Array<ArrayBuffer>> {
  const response = await fetch(address).catch(() => null);
  if (!response?.ok) throw new UserError("The runtime cannot be loaded; load the page again.");
  const bytes = new Uint8Array(await response.arrayBuffer());
  // Some hosts mark .gz files such that the browser has unzipped them already.
  if (bytes[0] !== 0x1f || bytes[1] !== 0x8b) return bytes;
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function say(message: FromWorker): void {
  self.postMessage(message);
}
