/** What the page and its workers say to each other. */
import type { Job, ModelJob, PhotoPrediction, TrainEvent, Trial } from "../contract";

/** A photo to predict: an image file, or a frame of the camera. */
export type Picture = Blob | ImageBitmap;

export type ToWorker =
  | { kind: "train"; job: Job }
  | { kind: "try"; kit: Uint8Array; threads: number }
  | { kind: "ask"; request: "go" | "pause" | "stop" }
  | { kind: "open"; model: ModelJob }
  | { kind: "predict"; id: number; photos: Picture[] };

export type FromWorker =
  | TrainEvent
  | { kind: "tried"; trial: Trial }
  | { kind: "predictions"; id: number; predictions: PhotoPrediction[]; heapBytes: number };
