/** The steepness of a computed classifier while a run trains; see device/train/temper.py. */
import type { Engine } from "./engine";
import type { TrainingLoader } from "./loader";
import { Purpose, Random } from "./random";
import type { Run } from "./run";

/** Batches of photos that tell how sure a classifier may be. */
const BATCHES = 4;
/** What the outputs are divided by from one trial to the next. */
const STRIDE = 4;
/** Smallest factor. */
const LEAST = STRIDE ** -8;

/**
 * Divides the outputs of a computed classifier until the loss of the first steps, in which norms use
 * the statistics of a batch, falls no more. Changes the engine's classifier and nothing else.
 */
export async function temper(
  run: Run,
  engine: Engine,
  training: TrainingLoader,
  head: string,
): Promise<number> {
  if (head === "kept" || head === "random" || !engine.statistics.size) return 1;
  const { offsets, settings } = run;
  const [weight, bias] = run.manifest.task.head.map(
    (name) => engine.parameters.get(name)!.data,
  ) as [Float32Array, Float32Array];
  const firstWeight = weight.slice();
  const firstBias = bias.map((value, c) => value - (offsets?.[c] ?? 0));
  const statistics = [...engine.statistics.values()].map(({ data }) => ({
    data,
    first: data.slice(),
  }));

  const setOutputs = (factor: number) => {
    weight.set(firstWeight.map((value) => value * factor));
    bias.set(firstBias.map((value, c) => value * factor + (offsets?.[c] ?? 0)));
  };
  const lossOf = async (factor: number) => {
    setOutputs(factor);
    const losses: number[] = [];
    for await (const batch of training.epoch(0)) {
      const random = new Random(settings.seed, Purpose.DROPOUT, 0);
      losses.push((await engine.gradients(batch.start, batch.labels, random)).loss);
      for (const { data, first } of statistics) data.set(first);
      if (losses.length === BATCHES) break;
    }
    const mean = losses.reduce((sum, loss) => sum + loss, 0) / Math.max(1, losses.length);
    return Number.isFinite(mean) ? mean : Infinity;
  };

  let factor = 1;
  let least = await lossOf(factor);
  while (factor > LEAST) {
    const less = await lossOf(factor / STRIDE);
    if (less > least) break;
    factor /= STRIDE;
    least = less;
  }
  setOutputs(factor);
  return factor;
}
