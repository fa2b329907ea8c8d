/** What the benchmark calls in the page: a worker with a kit, and a whole first use. */
import type { PhotoEntry, TrainEvent } from "../src/contract";
import { Predictor, Trainer } from "../src/engine/trainer";
import { Store } from "../src/storage/store";

let worker: Worker | null = null;

function ask<T>(message: unknown): Promise<T> {
  return new Promise((resolve, reject) => {
    worker!.onmessage = ({ data }: MessageEvent<T>) => resolve(data);
    worker!.onerror = (event) => reject(new Error(event.message));
    worker!.postMessage(message);
  });
}

function open(kit: string, threads: number): Promise<number> {
  worker = new Worker("bench.worker.js", { type: "module" });
  return ask({ kit, threads });
}

const step = (): Promise<[number, number, number]> => ask("step");

/** Milliseconds from the start of the page until a photo is predicted by ten others. */
async function first(kitAddress: string, threads: number): Promise<number> {
  const store = await Store.open("bench");
  const blobs = await Promise.all(Array.from({ length: 11 }, (_, i) => photo(i)));
  const photos: PhotoEntry[] = [];
  for (const [i, blob] of blobs.slice(0, 10).entries()) {
    const facts = { name: `${i}.jpg`, owners: [(i % 2) + 1], part: null, recording: 0 };
    const [record] = await store.add([{ ...facts, blob, thumbnail: blob }]);
    photos.push({ id: record!.id, name: record!.name, label: [i % 2], split: "train" });
  }
  store.close();
  const kit = new Uint8Array(await (await fetch(kitAddress)).arrayBuffer());
  const classes = ["one", "other"];
  const settings = { optimizer: "adam", seed: 0, threads } as const;
  const done = await new Promise<TrainEvent>((resolve) => {
    const trainer = new Trainer((event) => {
      if (!trainer.running) resolve(event);
    });
    trainer.start({ kit, classes, settings, photos: { database: "bench", photos } });
  });
  if (done.kind !== "done") throw new Error(JSON.stringify(done));
  const { parameters, known } = done.result;
  const model = new Predictor({ kit, classes, parameters, known, threads });
  await model.predict([blobs[10]!]);
  model.close();
  return performance.now();
}

function photo(number: number): Promise<Blob> {
  const canvas = new OffscreenCanvas(640, 480);
  const context = canvas.getContext("2d")!;
  context.fillStyle = number % 2 ? "#468" : "#a63";
  context.fillRect(0, 0, 640, 480);
  context.fillStyle = `hsl(${number * 30} 50% 70%)`;
  context.fillRect(20 * number, 100, 200, 200);
  return canvas.convertToBlob({ type: "image/jpeg" });
}

const bench = { open, step, first };
export type Bench = typeof bench;
Object.assign(window, { bench });
