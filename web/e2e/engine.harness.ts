/** The engine without the page, for tests and benchmarks: what they call stands on `window`. */
import type {
  Checkpoint,
  Choice,
  Device,
  Job,
  PhotoEntry,
  Settings,
  TrainEvent,
} from "../src/contract";
import { agree, browserHasGpu, chooseDevice } from "../src/engine/device";
import { readPixels } from "../src/engine/pixels";
import { Predictor, Trainer, tryInWorker } from "../src/engine/trainer";
import { centerView } from "../src/engine/views";
import { Store } from "../src/storage/store";

const DATABASE = "engine-test";
/** Milliseconds for a processor that does the work of a GPU. */
const SLOW = 160_000;

/** Made photos of two classes, bright above or bright below, as JPEGs in the browser's database. */
async function addPhotos(count: number): Promise<PhotoEntry[]> {
  const store = await Store.open(DATABASE);
  const canvas = new OffscreenCanvas(160, 120);
  const context = canvas.getContext("2d")!;
  const photos: PhotoEntry[] = [];
  for (let i = 0; i < count; i++) {
    const label = i % 2;
    context.fillStyle = `hsl(${(i * 37) % 360} 60% 25%)`;
    context.fillRect(0, 0, 160, 120);
    context.fillStyle = `hsl(${(i * 53) % 360} 60% 80%)`;
    context.fillRect(0, label ? 0 : 60, 160, 60);
    const blob = await canvas.convertToBlob({ type: "image/jpeg" });
    const facts = { name: `${i}.jpg`, owners: [label + 1], part: null, recording: 0 };
    const [record] = await store.add([{ ...facts, blob, thumbnail: blob }]);
    const split = i % 8 > 5 ? "validation" : "train";
    photos.push({ id: record!.id, name: record!.name, label: [label], split });
  }
  store.close();
  return photos;
}

async function kitBytes(name: string): Promise<Uint8Array> {
  return new Uint8Array(await (await fetch(`kits/${name}.zip`)).arrayBuffer());
}

/** Trains to the end, or stops after so many steps; gives all events but checkpoints, and the last
 * of these. */
async function train(
  name: string,
  photos: PhotoEntry[],
  settings: Settings,
  options: { stopAfter?: number; resume?: Checkpoint } = {},
): Promise<{ events: TrainEvent[]; checkpoint: Checkpoint | null }> {
  const job: Job = {
    kit: await kitBytes(name),
    classes: ["below", "above"],
    settings,
    photos: { database: DATABASE, photos },
    ...(options.resume && { resume: options.resume }),
  };
  const events: TrainEvent[] = [];
  let checkpoint: Checkpoint | null = null;
  await new Promise<void>((ended) => {
    const trainer = new Trainer((event) => {
      if (event.kind === "checkpoint") checkpoint = event.state;
      else events.push(event);
      if (event.kind === "step" && event.step === options.stopAfter) trainer.stop();
      if (!trainer.running) ended();
    });
    trainer.start(job);
  });
  return { events, checkpoint };
}

/** Trains, and predicts photos of the database by the result. */
async function trainAndPredict(name: string, photos: PhotoEntry[], settings: Settings) {
  const { events } = await train(name, photos, settings);
  const done = events.at(-1)!;
  if (done.kind !== "done") return { events, correct: 0, heapBytes: 0 };
  const { result } = done;
  const { parameters, known, classes } = result;
  const kit = await kitBytes(name);
  const model = new Predictor({ kit, classes, parameters, known, threads: settings.threads });
  const store = await Store.open(DATABASE);
  const blobs = await Promise.all(photos.map(({ id }) => store.photo(id)));
  const found = await model.predict(blobs);
  const frame = await createImageBitmap(blobs[0]!);
  const [of_frame] = await model.predict([frame]);
  model.close();
  store.close();
  return {
    events,
    correct: photos.filter(({ label }, i) => {
      const { probabilities } = found[i]!;
      return probabilities[label[0]!]! > 0.5;
    }).length,
    unknown: found.filter(({ unknown }) => unknown).length,
    frameIsPhoto: of_frame!.probabilities.every(
      (value, i) => Math.abs(value - found[0]!.probabilities[i]!) < 1e-6,
    ),
    heapBytes: model.heapBytes,
  };
}

/** The same bits after a stop and a resume? */
async function resumesExactly(name: string, photos: PhotoEntry[], settings: Settings) {
  const whole = await train(name, photos, settings);
  const stopped = await train(name, photos, settings, { stopAfter: 3 });
  const end = stopped.events.at(-1)!;
  const resume = stopped.checkpoint!;
  const resumed = await train(name, photos, settings, { resume });
  const [first, second] = [whole, resumed].map(({ events }) => {
    const done = events.at(-1)!;
    return done.kind === "done" ? [...done.result.parameters] : done;
  });
  return {
    reason: end.kind === "done" ? end.result.counters.finished : end.kind,
    step: resume.counters.step,
    /** How many steps were heard of before the run had stopped, and of the whole run. */
    heard: stepsOf(stopped.events),
    steps: stepsOf(whole.events),
    same: JSON.stringify(first) === JSON.stringify(second),
  };
}

const stepsOf = (events: TrainEvent[]) => events.filter(({ kind }) => kind === "step").length;

async function centerPixels(address: string, size: number): Promise<number[]> {
  const blob = await (await fetch(address)).blob();
  return [...(await readPixels(blob, centerView, size))];
}

/** What the GPU computes of a kit, beside WebAssembly; null without a GPU. */
async function compareDevices(name: string) {
  if (!(await browserHasGpu())) return null;
  const kit = await kitBytes(name);
  const tryOn = (device: Device) => tryInWorker(device, kit, 1, SLOW);
  const [gpu, plain] = [await tryOn("webgpu"), await tryOn("wasm")];
  const found = {
    tried: [gpu !== null, plain !== null],
    agree: gpu !== null && plain !== null && agree(gpu, plain),
    losses: [gpu?.loss, plain?.loss],
    seconds: [gpu?.seconds, plain?.seconds],
  };
  // As if the GPU were ten times as fast: what is computed does not depend on it.
  const fast = gpu && plain && { ...gpu, seconds: plain.seconds / 10 };
  const ways = {
    hasGpu: browserHasGpu,
    tryOn: async (device: Device) => (device === "webgpu" ? fast : plain),
  };
  return { ...found, choice: (await chooseDevice(ways)) satisfies Choice };
}

const harness = { compareDevices, addPhotos, train, trainAndPredict, resumesExactly, centerPixels };
export type Harness = typeof harness;
Object.assign(window, { harness });
