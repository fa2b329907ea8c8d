/** Runs of small kits on made photos, without a browser. */
import type {
  Checkpoint,
  FeatureKey,
  PhotoEntry,
  RunResult,
  TrainEvent,
  WorkerStore,
} from "../../src/contract";
import { type ReadPixels, Unreadable } from "../../src/engine/pixels";
import { Random } from "../../src/engine/random";
import type { Request, RunOptions } from "../../src/engine/run";
import { train } from "../../src/engine/train";
import { openKit } from "./kits";

export const CLASSES = ["red", "green", "blue"];

/** A store in memory. A photo's blob holds its id and label. */
export class MemoryStore implements WorkerStore {
  readonly features = new Map<string, Uint8Array>();
  photosRead = 0;
  writes = 0;
  room = true;

  constructor(private readonly photos: readonly PhotoEntry[]) {}

  async photo(id: number): Promise<Blob | undefined> {
    this.photosRead += 1;
    const found = this.photos.find((photo) => photo.id === id);
    return found && new Blob([JSON.stringify({ id, label: found.label })]);
  }

  async readFeatures(keys: FeatureKey[]) {
    return keys.map((key) => this.features.get(key.join()));
  }

  async writeFeatures(entries: [FeatureKey, Uint8Array][]): Promise<boolean> {
    this.writes += 1;
    if (this.room) for (const [key, bytes] of entries) this.features.set(key.join(), bytes);
    return this.room;
  }

  close(): void {
    this.features.clear();
  }
}

/**
 * Noise in which the color of the class, or those of the attributes, are a little brighter; it depends
 * on the photo and its crop.
 */
export function reader(damaged: readonly number[] = []): ReadPixels {
  return async (photo, choose, size) => {
    const { id, label } = JSON.parse(await (photo as Blob).text()) as PhotoEntry;
    if (damaged.includes(id)) throw new Unreadable("A photo is damaged.");
    const { box, mirrored } = choose(40, 30, size);
    const random = new Random(id, 9, box.left, box.top, box.width, Number(mirrored));
    const pixels = new Uint8Array(size * size * 3);
    const bright = (color: number) => (label.length > 1 ? label[color] : color === label[0]);
    return pixels.map((_, i) => random.below(bright(i % 3) ? 256 : 120));
  };
}

/** Photos of all classes in turn; every fourth one validates. */
export function photosOf(count: number, every = 4): PhotoEntry[] {
  return Array.from({ length: count }, (_, i) => ({
    id: 100 + i,
    name: `${i}.png`,
    label: [i % CLASSES.length],
    split: i % every === every - 1 ? "validation" : "train",
  }));
}

export interface Finished {
  result: RunResult | null;
  events: TrainEvent[];
  checkpoints: Checkpoint[];
  store: MemoryStore;
}

export interface Options extends Partial<Omit<RunOptions, "store">> {
  kitName?: "frozen" | "whole" | "attributes";
  store?: MemoryStore;
  /** What the user asks after each batch, in order; then nothing more. */
  requests?: Request[];
}

export async function runSmall(options: Options = {}): Promise<Finished> {
  const kit = options.kit ?? (await openKit(options.kitName ?? "frozen"));
  const photos = options.photos ?? photosOf(40);
  const store = options.store ?? new MemoryStore(photos);
  const events: TrainEvent[] = [];
  const checkpoints: Checkpoint[] = [];
  const requests = [...(options.requests ?? [])];
  const result = await train({
    kit,
    state: kit.parameters,
    stateClasses: kit.manifest.task.classes,
    classes: CLASSES,
    settings: { optimizer: "adam", seed: 1, threads: 1, epochs: 9 },
    photos,
    read: reader(),
    asked: async () => requests.shift() ?? "go",
    heap: () => 1,
    ...options,
    store,
    // As a message to the page copies them.
    emit: (event) => {
      events.push(event);
      if (event.kind === "checkpoint") checkpoints.push(structuredClone(event.state));
    },
  });
  return { result: structuredClone(result), events, checkpoints, store };
}
