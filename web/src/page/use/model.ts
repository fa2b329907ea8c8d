/** The model in use, and its predictions. A worker is there while the part is open. */
import type { PhotoPrediction } from "../../contract";
import { Predictor } from "../../engine/trainer";
import type { ModelRecord } from "../../storage/schema";
import type { Catalog } from "../kits";
import { threads } from "../train/threads";

/** Without a description of the classes, a photo whose likeliest class is below this is none. */
export const UNSURE = 0.5;

export interface Answer extends PhotoPrediction {
  /** The likeliest class; or the attributes above one half. */
  told: number[];
}

export class ModelInUse {
  private predictor: Promise<Predictor> | undefined;

  constructor(
    readonly record: ModelRecord,
    private readonly catalog: Catalog,
  ) {}

  /** Predictions in order; frames of the camera are taken over. */
  async predict(photos: (Blob | ImageBitmap)[]): Promise<Answer[]> {
    const predictor = await this.prepare();
    const predictions = await predictor.predict(photos);
    return predictions.map((each) => answerOf(each, this.record));
  }

  /** Start the worker, if there is none. */
  prepare(): Promise<Predictor> {
    return (this.predictor ??= this.open());
  }

  /** End the worker, which gives its memory back. */
  close(): void {
    void this.predictor?.then((predictor) => predictor.close()).catch(() => undefined);
    this.predictor = undefined;
  }

  /** Where it fails, the next photo begins with another worker. */
  private open(): Promise<Predictor> {
    const drop = () => {
      if (this.predictor === opened) this.predictor = undefined;
    };
    const opened = this.start(drop);
    opened.catch(drop);
    return opened;
  }

  private async start(failed: () => void): Promise<Predictor> {
    const { kitHash, classes, parameters, known } = this.record;
    const kit = await this.catalog.zip(kitHash);
    return new Predictor({ kit, classes, parameters, known, threads: threads() }, failed);
  }
}

/** The prediction with what is told of the photo, and whether it is of none of the classes. */
export function answerOf(
  prediction: PhotoPrediction,
  { task, known }: Pick<ModelRecord, "task" | "known">,
): Answer {
  const probabilities = [...prediction.probabilities];
  if (task === "attributes") {
    const told = [...probabilities.keys()].filter((i) => probabilities[i]! > 0.5);
    return { ...prediction, told };
  }
  const most = Math.max(...probabilities);
  const told = probabilities.length ? [probabilities.indexOf(most)] : [];
  const unknown = known ? prediction.unknown : told.length > 0 && most < UNSURE;
  return { ...prediction, told, unknown };
}
