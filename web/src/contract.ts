/**
 * The objects that pass between formats/, engine/, storage/ and page/. Types only, except for
 * UserError. Everything that crosses a worker's border is structured-cloneable.
 */

/** An error that the user can cause or mend; its message is one sentence for them. */
export class UserError extends Error {
  override name = "UserError";
}

/** An error that a run meets again when it goes on from its checkpoint: it has to start over. */
export class FinalError extends UserError {}

/** A float32 tensor, row-major. */
export interface Tensor {
  shape: number[];
  data: Float32Array;
}

export type State = Map<string, Tensor>;

// ---------------------------------------------------------------------------------------------
// Kits (formats/kit.ts: `readKit(zip: Uint8Array): Promise<Kit>`)

/** `manifest.json` of a kit, with the names of its fields; see docs/kit.md. */
export interface Manifest {
  schema: number;
  version: string;
  network: Record<string, unknown>;
  method: Record<string, unknown>;
  task: TaskSpec;
  size: number;
  mean: [number, number, number];
  std: [number, number, number];
  batch: number;
  /** Photos that the graphs compute at once. */
  micro_batch: number;
  features: number[] | null;
  embeddings: number | null;
  parameters: ParameterSpec[];
  statistics: TensorSpec[];
  masks: MaskSpec[];
  graphs: Record<string, GraphSpec>;
  files: Record<string, string>;
  quantization: Record<string, unknown> | null;
}

/** The tasks that the page trains. */
export type TaskName = "classification" | "attributes";

/** The task, as `Task.to_dict` writes it. */
export interface TaskSpec {
  name: TaskName;
  classes: string[];
  head: string[];
  label_smoothing?: number;
  [option: string]: unknown;
}

export interface TensorSpec {
  name: string;
  shape: number[];
}

export interface ParameterSpec extends TensorSpec {
  group: "main" | "decode_head" | "branch" | "head";
}

export interface MaskSpec extends TensorSpec {
  keep: number;
}

export interface GraphSpec {
  memory: number;
  flops: number;
  nodes: number;
  weights: number;
  largest: number;
  arena: number;
  work: Record<string, { calls: number; flops: number; bytes: number }>;
}

/** An opened kit, checked as `pocketune kit check` does without running it. */
export interface Kit {
  manifest: Manifest;
  graphs: { features?: Uint8Array; step: Uint8Array; predict: Uint8Array };
  /** Initial values of parameters and running statistics, by name. */
  parameters: State;
  /** SHA-256 of manifest.json, in hexadecimal: the kit's identity. */
  hash: string;
  /** All files of the kit by name, manifest.json included. */
  files: Map<string, Uint8Array>;
}

// ---------------------------------------------------------------------------------------------
// Photos (storage/)

export type Split = "train" | "validation";

/** The index of the class; or for each attribute, 1 if the photo has it and 0 if not. */
export type Label = readonly number[];

export interface Photo {
  id: number;
  name: string;
  label: Label;
  blob: Blob;
  split: Split;
}

/** A photo without its bytes; a run is given these in the order of the data set. */
export type PhotoEntry = Omit<Photo, "blob">;

/** What a worker needs to read photos itself, so that no more than a batch is in memory. */
export interface PhotoSource {
  /** Name of the IndexedDB database. */
  database: string;
  photos: PhotoEntry[];
}

/** Where kept features belong: a photo, and one view of it by one kit (`hash/draw`). */
export type FeatureKey = [photo: number, view: string];

/**
 * What the engine reads and writes while it runs. storage/worker.ts implements it by IndexedDB
 * (`openWorkerStore(database: string): Promise<WorkerStore>`), tests in memory.
 */
export interface WorkerStore {
  /** Undefined for a photo that was deleted. */
  photo(id: number): Promise<Blob | undefined>;
  /** Undefined for features that are not kept. */
  readFeatures(keys: FeatureKey[]): Promise<(Uint8Array | undefined)[]>;
  /** False if there is no room; the engine then goes on without. */
  writeFeatures(entries: [FeatureKey, Uint8Array][]): Promise<boolean>;
  close(): void;
}

// ---------------------------------------------------------------------------------------------
// Training (engine/trainer.ts: class Trainer)

export type OptimizerName = "adam" | "adamw" | "sgd";

/** What a user may set; the engine fills in the rest as `TrainSettings.resolved` does. */
export interface Settings {
  epochs?: number;
  lr?: number;
  headLr?: number;
  optimizer: OptimizerName;
  seed: number;
  /** 1 or 2; 1 is used where the page is not cross-origin isolated. */
  threads: number;
}

/** All settings of a run, with the names and defaults of `TrainSettings` in Python. */
export interface ResolvedSettings {
  epochs: number;
  optimizer: OptimizerName;
  lr: number;
  head_lr: number;
  bias_lr: number;
  side_lr: number;
  decode_lr: number;
  momentum: number | null;
  weight_decay: number;
  warmup: number;
  patience: number;
  balance: number;
  head_start: "auto" | "random";
  cache: "auto" | "off";
  draws: number | null;
  seed: number;
  threads: number;
}

/** What computes the step: WebAssembly, or the GPU by WebGPU. All other graphs are WebAssembly's. */
export type Device = "wasm" | "webgpu";

/** What a device gives for the step of a kit on noise. */
export interface Trial {
  loss: number;
  /** By the parameter's name, flat. */
  gradients: Map<string, Float32Array>;
  /** Of one step. */
  seconds: number;
}

/** The device of a run, and how many times as fast the GPU is; null if there is none that agrees. */
export interface Choice {
  device: Device;
  speedup: number | null;
}

export interface Job {
  /** The .zip of a kit. */
  kit: Uint8Array;
  classes: string[];
  settings: Settings;
  photos: PhotoSource;
  /** Values of an earlier run to begin with, in place of the kit's. */
  start?: { classes: string[]; parameters: State };
  /** Goes on from here, as if the run had never stopped; same kit, classes, settings and photos. */
  resume?: Checkpoint;
}

/** Mean loss and accuracy, as `Score` of Python's tasks. */
export interface Score {
  name: "accuracy";
  value: number;
  loss: number;
  style: ".1%";
}

/** A line of metrics.jsonl, in the fields that Python's run log has; see device/train/log.py. */
export interface LogLine {
  kind: "start" | "step" | "epoch" | "refit" | "end";
  step: number;
  elapsed: number;
  [field: string]: unknown;
}

export interface OptimizerState {
  steps: number;
  /** Flat buffers by `<slot>.<parameter>`, as `Optimizer.state` of Python names them. */
  slots: Map<string, Float32Array>;
}

export interface Counters {
  step: number;
  epoch: number;
  /** Batches of this epoch that are done. */
  batch: number;
  lossSum: number;
  correct: number;
  started: boolean;
  /** Null while it goes on. */
  finished: "steps" | "patience" | "stopped" | null;
  start: Score | null;
  best: Score | null;
  bestStep: number;
  /** The best score as epochs are compared: on uneven sets, photos of rare classes weigh more. */
  judged: Score | null;
  /** Form of the classifier that was computed after the last step, if its score is the best. */
  refitted: string | null;
  trained: Score | null;
  stale: number;
  head: string;
  headImages: number;
  estimate: Score | null;
  elapsed: number;
}

/** Everything that a run goes on from; random numbers follow from seed, epoch and step alone. */
export interface Checkpoint {
  kitHash: string;
  classes: string[];
  settings: ResolvedSettings;
  photos: PhotoEntry[];
  counters: Counters;
  /** Current parameters and running statistics. */
  state: State;
  optimizer: OptimizerState;
  /** Best parameters and running statistics so far. */
  best: State;
  log: LogLine[];
}

/** The classes of a run by their embeddings, to tell photos of none; see device/use/known.py. */
export interface Known {
  center: Tensor;
  directions: Tensor;
  gains: Tensor;
  means: Tensor;
  threshold: Tensor;
}

export interface Mistake {
  photo: number;
  /** 0; or which attribute is told wrong. */
  question: number;
  /** The class; or 1 for an attribute that the photo has, else 0. */
  label: number;
  guess: number;
  /** Probability of the guess. */
  probability: number;
}

/** What a finished run gives; formats/run.ts writes a run folder, a delta or model.onnx of it. */
export interface RunResult {
  kitHash: string;
  task: TaskName;
  classes: string[];
  settings: ResolvedSettings;
  photos: { training: number; validation: number; imbalance: number };
  counters: Counters;
  /** Score after the last step. */
  last: Score | null;
  /** Best parameters and running statistics: what the run is used with. */
  parameters: State;
  known: Known | null;
  log: LogLine[];
  /**
   * Validation photos by class (row) and predicted class (column), by the best parameters; for each
   * attribute, by whether they have it and whether that is predicted.
   */
  confusion: number[][][];
  /** What is predicted wrong of validation photos, the surest first; at most 50. */
  mistakes: Mistake[];
  heapBytes: number;
  runtime: string;
  seconds: number;
  stepSeconds: number | null;
}

export type Phase = "opening" | "features" | "head" | "training" | "validating" | "result" | "done";

export type TrainEvent =
  | { kind: "device"; choice: Choice }
  | { kind: "phase"; phase: Phase }
  | {
      kind: "progress";
      done: number;
      total: number;
      imagesPerSecond: number;
      secondsLeft: number;
      heapBytes: number;
    }
  | { kind: "step"; step: number; steps: number; loss: number; correct: number; images: number }
  /** A loss is not finite; `done` follows with the values before. */
  | { kind: "diverged"; message: string }
  | {
      kind: "epoch";
      /** 0 before the first step: what the computed head gives. */
      epoch: number;
      epochs: number;
      trainingLoss: number | null;
      trainingAccuracy: number | null;
      validationLoss: number | null;
      validationAccuracy: number | null;
      best: boolean;
      /** Whether the best values can be used: their classifier was computed or kept, or there were steps. */
      usable: boolean;
    }
  | { kind: "checkpoint"; state: Checkpoint }
  | { kind: "paused" }
  | { kind: "done"; result: RunResult }
  | { kind: "stopped" }
  /** Whether the run would fail again if it went on from its checkpoint. */
  | { kind: "error"; message: string; final: boolean };

/** A model to predict with: the best values of a run, or those of a kit. */
export interface ModelJob {
  kit: Uint8Array;
  classes: string[];
  /** Best parameters and running statistics. */
  parameters: State;
  known: Known | null;
  threads: number;
}

export interface PhotoPrediction {
  /** By class, which add up to 1, or by attribute. Empty if the photo cannot be decoded. */
  probabilities: Float32Array;
  embedding: Float32Array | null;
  /** 1 minus the cosine to the nearest class mean; null without `known`. */
  distance: number | null;
  /** Whether it looks like a photo of none of the classes. */
  unknown: boolean;
}
