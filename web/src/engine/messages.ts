/** What the page and its workers say to each other. */
import {
  type Job,
  type ModelJob,
  type PhotoPrediction,
  type TrainEvent,
  type Trial,
  UserError,
} from "../contract";

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

/** What is said where one of them cannot read what the other has sent. */
export const UNREAD =
  "The page and its worker could not pass on what they need, perhaps for lack of memory; load the page again.";

/** Why something has failed, in a sentence. */
export function failure(what: string, error: unknown): string {
  if (error instanceof UserError) return error.message;
  const reason = error instanceof Error ? error.message : String(error);
  return `${what} has failed: ${reason.split("\n")[0]}`;
}
