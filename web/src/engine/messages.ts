/** What the page and its workers say to each other. */
import type { Job, ModelJob, PhotoPrediction, TrainEvent } from "../contract";

/** A photo to predict: an image file, or a frame of the camera. */
export type Picture = Blob | ImageBitmap;

export type ToWorker =
  | { kind: "train"; job: Job }
  | { kind: "ask"; request: "go" | "pause" | "stop" }
  | { kind: "open"; model: ModelJob }
  | { kind: "predict"; id: number; photos: Picture[] };

export type FromWorker =
  | TrainEvent
  | { kind: "predictions"; id: number; predictions: PhotoPrediction[]; heapBytes: number };
