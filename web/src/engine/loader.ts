/** Batches of photos as the graphs start from them; see data/loader.py and device/cache/loader.py. */
import {
  type FeatureKey,
  type Label,
  type PhotoEntry,
  FinalError,
  type WorkerStore,
} from "../contract";
import { joined } from "../formats/bytes";
import type { Code } from "./code";
import type { Start } from "./engine";
import { type ReadPixels, Unreadable } from "./pixels";
import { Purpose, Random } from "./random";
import { centerView, type ChooseView, randomView } from "./views";

export interface Batch {
  start: Start;
  labels: Label[];
  /** Ids of the photos. */
  photos: number[];
}

/** Where photos come from, and what computes the frozen part of the network. */
export interface Source {
  store: WorkerStore;
  read: ReadPixels;
  prepare: (pixels: Uint8Array) => Promise<Start>;
  size: number;
  /** Values of one photo that the graphs start from. */
  startSize: number;
}

/** Features that are kept. */
export interface Cache {
  code: Code;
  /** Begins the names of the views; tells networks and settings apart. */
  name: string;
}

interface Decoded {
  photo: PhotoEntry;
  pixels: Uint8Array;
}

/** A photo of a batch: its features, if they are known, or its pixels, which may be another's. */
interface Wanted {
  photo: PhotoEntry;
  key: FeatureKey;
  kept: Uint8Array | undefined;
  decoded: Promise<Decoded | null> | null;
}

/** Which crop of a photo is meant: the number of the draw, or the middle. */
type Draw = number | "center";

/**
 * Photos of an evaluation: the middle of each, in order; those that cannot be decoded, or were deleted
 * while the run went on, are left out.
 */
export class Loader {
  protected readonly failed = new Set<number>();
  /** Whether the last features were kept: once there is no room, no others are offered. */
  private hasRoom = true;

  constructor(
    protected readonly photos: readonly PhotoEntry[],
    protected readonly source: Source,
    readonly batch: number,
    private readonly cache: Cache | null,
  ) {}

  /** Batches in an epoch. */
  get length(): number {
    return Math.ceil(this.photos.length / this.batch);
  }

  /** The batches of an epoch, from number `first` on; one is decoded ahead. */
  async *epoch(epoch: number, first = 0): AsyncGenerator<Batch, void, undefined> {
    const draw = this.draw(epoch);
    const order = this.order(epoch);
    let ahead = this.begin(order, draw, first);
    for (let number = first; number < this.length; number++) {
      const wanted = await ahead;
      const next = number + 1 < this.length ? this.begin(order, draw, number + 1) : null;
      next?.catch(() => undefined);
      const batch = await this.finish(wanted);
      if (batch.labels.length) yield batch;
      if (!next) return;
      ahead = next;
    }
  }

  /** Photos, one at a time, with numbers of their own if they come more than once. */
  protected order(_epoch: number): Uint32Array {
    return Uint32Array.from(this.photos.keys());
  }

  /** The crops that an epoch sees. */
  protected draw(_epoch: number): Draw {
    return "center";
  }

  /** Args: the draw; the photo; how often it came before in this epoch. */
  protected view(_draw: Draw, _photo: PhotoEntry, _turn: number): ChooseView {
    return centerView;
  }

  /** The photos that may stand for one, itself first. */
  protected *candidates(index: number): Iterable<PhotoEntry> {
    yield this.photos[index % this.photos.length]!;
  }

  private async begin(order: Uint32Array, draw: Draw, number: number): Promise<Wanted[]> {
    const indices = [...order.subarray(number * this.batch, (number + 1) * this.batch)];
    const keys = indices.map((index): FeatureKey => {
      const turn = Math.floor(index / this.photos.length);
      const view = `${this.cache?.name}/${draw}${turn ? `/${turn}` : ""}`;
      return [this.photos[index % this.photos.length]!.id, view];
    });
    const kept = this.cache ? await this.source.store.readFeatures(keys) : [];
    return indices.map((index, i) => {
      const decoded = kept[i] ? null : this.decode(index, draw);
      decoded?.catch(() => undefined); // reported where it is awaited, unless the run has stopped
      return {
        photo: this.photos[index % this.photos.length]!,
        key: keys[i]!,
        kept: kept[i],
        decoded,
      };
    });
  }

  private async decode(index: number, draw: Draw): Promise<Decoded | null> {
    const { store, read, size } = this.source;
    const turn = Math.floor(index / this.photos.length);
    for (const photo of this.candidates(index)) {
      if (this.failed.has(photo.id)) continue;
      try {
        const blob = await store.photo(photo.id);
        if (!blob) throw new Unreadable("A photo was deleted.");
        return { photo, pixels: await read(blob, this.view(draw, photo, turn), size) };
      } catch (error) {
        if (!(error instanceof Unreadable)) throw error;
        this.failed.add(photo.id);
      }
    }
    return null;
  }

  private async finish(wanted: Wanted[]): Promise<Batch> {
    const { startSize } = this.source;
    const photos: PhotoEntry[] = [];
    const parts: Start[] = [];
    const fresh: [FeatureKey, Uint8Array][] = [];
    for (const { photo, key, kept, decoded } of wanted) {
      const found = await decoded;
      if (!kept && !found) continue;
      photos.push(kept ? photo : found!.photo);
      if (!this.cache) {
        parts.push(found!.pixels);
        continue;
      }
      // One at a time and encoded before use, so that kept and new features are the same bits.
      const content = kept ?? (await this.encoded(found!.pixels));
      if (!kept && found!.photo === photo) fresh.push([key, content]);
      const features = new Float32Array(startSize);
      this.cache.code.decode(content, features, 0);
      parts.push(features);
    }
    if (fresh.length && this.hasRoom) {
      this.hasRoom = await this.source.store.writeFeatures(fresh);
    }
    const start = this.cache
      ? joined(parts, Float32Array)
      : await this.source.prepare(joined(parts, Uint8Array));
    return { start, labels: photos.map(({ label }) => label), photos: photos.map(({ id }) => id) };
  }

  private async encoded(pixels: Uint8Array): Promise<Uint8Array> {
    return this.cache!.code.encode((await this.source.prepare(pixels)) as Float32Array);
  }
}

/**
 * Photos of training, in random order, randomly cropped and mirrored. An incomplete last batch is
 * dropped. If the photos are fewer than a batch, the only batch has some of them again, cropped
 * differently. A photo that cannot be decoded is replaced by the next one that can.
 */
export class TrainingLoader extends Loader {
  constructor(
    photos: readonly PhotoEntry[],
    source: Source,
    batch: number,
    cache: Cache | null,
    private readonly seed: number,
    /** Different crops of each photo; epochs after so many repeat them. */
    private readonly draws: number | null,
  ) {
    super(photos, source, batch, cache);
  }

  override get length(): number {
    return Math.max(1, Math.floor(this.photos.length / this.batch));
  }

  protected override order(epoch: number): Uint32Array {
    const count = this.photos.length;
    const order = new Random(this.seed, Purpose.ORDER, epoch).permutation(count);
    if (count >= this.batch) return order;
    return Uint32Array.from(
      { length: this.batch },
      (_, i) => order[i % count]! + count * Math.floor(i / count),
    );
  }

  protected override draw(epoch: number): number {
    return this.draws ? epoch % this.draws : epoch;
  }

  /** Crops depend on the photo alone, so that kept features suit every run of the same seed. */
  protected override view(draw: Draw, photo: PhotoEntry, turn: number): ChooseView {
    const numbers = [Number(draw), photo.id, turn];
    return (width, height) =>
      randomView(width, height, new Random(this.seed, Purpose.CROP, ...numbers));
  }

  protected override *candidates(index: number): Iterable<PhotoEntry> {
    const count = this.photos.length;
    for (let i = 0; i < count; i++) yield this.photos[(index + i) % count]!;
    throw new FinalError("None of the training photos can be opened; add others.");
  }
}
