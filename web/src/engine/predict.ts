/** Predictions of photos, with how far each is from the known classes. */
import type { Known, PhotoPrediction } from "../contract";
import type { Engine } from "./engine";
import { distancesOf } from "./known";
import type { Picture } from "./messages";
import { type ReadPixels, Unreadable } from "./pixels";
import { centerView } from "./views";

const NOTHING: PhotoPrediction = {
  probabilities: new Float32Array(0),
  embedding: null,
  distance: null,
  unknown: false,
};

/** One photo at a time, so that a folder takes no more memory than a photo. */
export async function predict(
  engine: Engine,
  known: Known | null,
  photos: readonly Picture[],
  read: ReadPixels,
): Promise<PhotoPrediction[]> {
  const predictions: PhotoPrediction[] = [];
  for (const photo of photos) {
    try {
      const pixels = await read(photo, centerView, engine.manifest.size);
      predictions.push(await predictPixels(engine, known, pixels));
    } catch (error) {
      if (!(error instanceof Unreadable)) throw error;
      predictions.push(NOTHING);
    }
  }
  return predictions;
}

export async function predictPixels(
  engine: Engine,
  known: Known | null,
  pixels: Uint8Array,
): Promise<PhotoPrediction> {
  const start = await engine.prepare(pixels);
  const probabilities = engine.task.probabilities(await engine.logits(start));
  if (engine.manifest.embeddings === null) return { ...NOTHING, probabilities };
  const embedding = await engine.embed(start);
  const distance = known ? distancesOf(known, embedding)[0]! : null;
  const unknown = distance !== null && distance > known!.threshold.data[0]!;
  return { probabilities, embedding, distance, unknown };
}
