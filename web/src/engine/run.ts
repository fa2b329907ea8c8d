/** What a run has: its kit, photos, settings and the ways out of it. */
import {
  type Checkpoint,
  FinalError,
  type Kit,
  type PhotoEntry,
  type ResolvedSettings,
  type Settings,
  type State,
  type TrainEvent,
  UserError,
  type WorkerStore,
} from "../contract";
import { Code } from "./code";
import { resolve } from "./defaults";
import type { Engine } from "./engine";
import { type Cache, Loader, type Source, TrainingLoader } from "./loader";
import { adjustment, countGroups } from "./metric";
import type { ReadPixels } from "./pixels";
import { Purpose, Random } from "./random";
import { type Task, taskOf } from "./tasks";

/** What the user asks of a run while it goes on. */
export type Request = "go" | "pause" | "stop";

export interface RunOptions {
  kit: Kit;
  /** Values to start from, and their classes: the kit's, or those of a run. */
  state: State;
  stateClasses: readonly string[];
  classes: string[];
  settings: Settings;
  photos: PhotoEntry[];
  store: WorkerStore;
  read: ReadPixels;
  /** Takes events; it copies the arrays of a checkpoint, which the run goes on to change. */
  emit: (event: TrainEvent) => void;
  /** Called after each batch; answers after other messages have been heard. */
  asked: () => Promise<Request>;
  /** Bytes of the runtime's heap. */
  heap: () => number;
  resume?: Checkpoint;
  /** Seconds between checkpoints. */
  checkpointSeconds?: number;
}

/** The user has asked the run to stop. */
export class Stopped extends Error {}

export class Run {
  readonly task: Task;
  readonly train: PhotoEntry[];
  readonly validate: PhotoEntry[];
  readonly settings: ResolvedSettings;
  readonly imbalance: number;
  /** What is added to the logits while the run trains, for classes of uneven size. */
  readonly offsets: Float32Array | null;
  /** Whether it only has to say what its result is like, by itself or as the user has asked. */
  private ended = false;
  /** Milliseconds in which it was paused. */
  private paused = 0;
  /** Milliseconds of a clock that stands still while the run is paused. */
  readonly now = () => performance.now() - this.paused;

  constructor(readonly options: RunOptions) {
    const { kit, photos, classes, resume } = options;
    this.task = taskOf(kit.manifest.task.name, classes.length);
    check(options, this.task);
    this.train = photos.filter(({ split }) => split === "train");
    this.validate = photos.filter(({ split }) => split === "validation");
    const labels = this.train.map(({ label }) => label);
    const counts = countGroups(this.task, labels);
    this.imbalance = Math.max(...counts) / Math.min(...counts);
    const { manifest } = kit;
    const stepsPerEpoch = Math.max(1, Math.floor(labels.length / manifest.batch));
    const given = {
      training: this.train.length,
      validation: this.validate.length,
      stepsPerEpoch,
      imbalance: this.imbalance,
    };
    this.settings = resume?.settings ?? resolve(options.settings, manifest, given);
    this.offsets = this.steps ? adjustment(counts, this.settings.balance) : null;
  }

  get manifest() {
    return this.options.kit.manifest;
  }

  get stepsPerEpoch(): number {
    return Math.max(1, Math.floor(this.train.length / this.manifest.batch));
  }

  get steps(): number {
    return this.settings.epochs * this.stepsPerEpoch;
  }

  get biasName(): string {
    return this.manifest.task.head[1] ?? "";
  }

  training(engine: Engine): TrainingLoader {
    const { seed, draws } = this.settings;
    const cache = this.cache(engine, Code.ofTraining(engine.startSize), `${seed}`);
    return new TrainingLoader(
      this.train,
      this.source(engine),
      this.manifest.batch,
      cache,
      seed,
      draws,
    );
  }

  /** Exact features are kept, so that a score is that of the network as it will be used. */
  validation(engine: Engine, photos = this.validate): Loader {
    const cache = this.cache(engine, new Code(engine.startSize, 32), "exact");
    return new Loader(photos, this.source(engine), this.manifest.batch, cache);
  }

  /** The training photos as they are evaluated; any beginning of them is a fair sample. */
  sample(engine: Engine, most: number): Loader {
    const random = new Random(this.settings.seed, Purpose.SAMPLE);
    const order = random.permutation(this.train.length).slice(0, most);
    return this.centered(
      engine,
      Array.from(order, (i) => this.train[i]!),
    );
  }

  /** Photos as they are evaluated, without keeping their features. */
  centered(engine: Engine, photos: PhotoEntry[]): Loader {
    return new Loader(photos, this.source(engine), this.manifest.batch, null);
  }

  /** It has what it ends with: a request would only lose that. */
  end(): void {
    this.ended = true;
    this.options.emit({ kind: "phase", phase: "result" });
  }

  /** Throws Stopped, or goes on when it may. */
  async goOn(save?: () => void): Promise<void> {
    if (this.ended) return;
    let request = await this.options.asked();
    if (request !== "go") save?.();
    if (request === "pause") request = await this.pause();
    if (request === "stop") throw new Stopped();
  }

  private async pause(): Promise<Request> {
    const began = performance.now();
    this.options.emit({ kind: "paused" });
    let request: Request = "pause";
    while (request === "pause") {
      await new Promise((wake) => setTimeout(wake, 50));
      request = await this.options.asked();
    }
    this.paused += performance.now() - began;
    return request;
  }

  progress(done: number, total: number, secondsEach: number, images = this.manifest.batch): void {
    this.options.emit({
      kind: "progress",
      done,
      total,
      imagesPerSecond: secondsEach ? images / secondsEach : 0,
      secondsLeft: (total - done) * secondsEach,
      heapBytes: this.options.heap(),
    });
  }

  private source(engine: Engine): Source {
    return {
      store: this.options.store,
      read: this.options.read,
      prepare: (pixels) => engine.prepare(pixels),
      size: this.manifest.size,
      startSize: engine.startSize,
    };
  }

  private cache(engine: Engine, code: Code, what: string): Cache | null {
    if (this.settings.cache === "off" || !engine.manifest.features) return null;
    // Kits that share the frozen part share its features.
    const network = this.manifest.files["features.onnx"] ?? this.options.kit.hash;
    return { code, name: `${network.slice(0, 16)}/${code.bits}/${what}` };
  }
}

/** Throws UserError where a run would make no sense. */
function check({ kit, classes, photos, resume }: RunOptions, task: Task): void {
  const labels = photos.filter(({ split }) => split === "train").map(({ label }) => label);
  if (kit.manifest.task.name === "attributes") {
    if (new Set(labels.map((label) => label.join())).size < 2) {
      throw new UserError(
        "The photos to train on all have the same attributes; add some that differ in one.",
      );
    }
  } else checkClasses(classes, countGroups(task, labels));
  if (!resume) return;
  const same =
    resume.kitHash === kit.hash &&
    JSON.stringify(resume.classes) === JSON.stringify(classes) &&
    JSON.stringify(resume.photos) === JSON.stringify(photos);
  if (!same) {
    throw new FinalError("The kit, the classes or the photos have changed; start a new run.");
  }
}

function checkClasses(classes: readonly string[], counts: readonly number[]): void {
  if (classes.length < 2) throw new UserError("There is only one class; add another one.");
  const empty = counts.indexOf(0);
  if (empty >= 0) {
    throw new UserError(`The class ${classes[empty]!} has no photos to train on; add some.`);
  }
}
