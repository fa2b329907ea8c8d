/** A whole run: start, steps, and what its result says of the classes. */
import type { Known, Mistake, PhotoEntry, RunResult } from "../contract";
import { joined } from "../formats/bytes";
import { fitKnown, type Labeled } from "./known";
import type { Loader } from "./loader";
import { Loop } from "./loop";
import { Run, type RunOptions, Stopped } from "./run";
import { runtimeName } from "./session";
import { startValues } from "./start";

const MISTAKES = 50;
/** Limits of the photos that describe the known classes, and of the values of their embeddings. */
const KNOWN_PHOTOS = 600;
const KNOWN_VALUES = 1 << 18;

/** Trains to the end; null if the user has stopped the run before it had anything to keep. */
export async function train(options: RunOptions): Promise<RunResult | null> {
  const run = new Run(options);
  try {
    const loop = new Loop(run, options.resume ?? (await startValues(run)));
    await loop.toTheEnd();
    run.end();
    return await resultOf(run, loop);
  } catch (error) {
    if (error instanceof Stopped) return null;
    throw error;
  }
}

async function resultOf(run: Run, loop: Loop): Promise<RunResult> {
  const { options, settings } = run;
  loop.engine.load(loop.best);
  const judged = await judge(run, loop);
  const known = await describe(run, loop);
  await loop.engine.release();
  const { counters, log } = loop;
  counters.elapsed = log.elapsed;
  return {
    kitHash: options.kit.hash,
    task: run.manifest.task.name,
    classes: options.classes,
    settings,
    photos: {
      training: run.train.length,
      validation: run.validate.length,
      imbalance: run.imbalance,
    },
    counters,
    last: loop.last,
    parameters: loop.best,
    known,
    log: log.lines,
    ...judged,
    heapBytes: options.heap(),
    runtime: runtimeName(),
    seconds: log.elapsed,
    stepSeconds: median(log.stepSeconds),
  };
}

/** Confusion matrices and worst mistakes of the best values on the validation photos. */
async function judge(run: Run, loop: Loop): Promise<Pick<RunResult, "confusion" | "mistakes">> {
  const { outputs, questions, choices } = run.task;
  const confusion = Array.from({ length: questions }, () =>
    Array.from({ length: choices }, () => new Array<number>(choices).fill(0)),
  );
  const mistakes: Mistake[] = [];
  for await (const batch of run.validation(loop.engine).epoch(0)) {
    const logits = await loop.engine.logits(batch.start);
    batch.labels.forEach((answers, i) => {
      const own = run.task.probabilities(logits.subarray(i * outputs, (i + 1) * outputs));
      const guesses = run.task.answers(logits, i * outputs);
      answers.forEach((label, question) => {
        const guess = guesses[question]!;
        confusion[question]![label]![guess]! += 1;
        if (guess === label) return;
        const probability = run.task.probabilityOf(own, question, guess);
        mistakes.push({ photo: batch.photos[i]!, question, label, guess, probability });
      });
    });
    await run.goOn();
  }
  mistakes.sort((a, b) => b.probability - a.probability);
  return { confusion, mistakes: mistakes.slice(0, MISTAKES) };
}

/** What photos of the classes look like; null for attributes, or a network without embeddings. */
async function describe(run: Run, loop: Loop): Promise<Known | null> {
  const size = run.manifest.embeddings;
  const { groups } = run.task;
  if (size === null || groups < 2) return null;
  const limit = Math.max(Math.min(KNOWN_PHOTOS, Math.floor(KNOWN_VALUES / size)), 2 * groups);
  const ofTraining = run.centered(loop.engine, evenly(run, run.train, limit));
  const training = await embed(run, loop, ofTraining, size);
  if (!training.labels.length) return null;
  const heldOut = run.validation(loop.engine, evenly(run, run.validate, limit));
  return fitKnown(training, (await embed(run, loop, heldOut, size)).rows);
}

/** At most so many photos, of all classes in turn. */
function evenly(run: Run, photos: PhotoEntry[], limit: number): PhotoEntry[] {
  const seen = new Map<number, number>();
  const places = photos.map(({ label }) => {
    const group = run.task.group(label);
    const place = seen.get(group) ?? 0;
    seen.set(group, place + 1);
    return place;
  });
  const chosen = [...places.keys()].sort((a, b) => places[a]! - places[b]! || a - b);
  const kept = chosen.slice(0, limit).sort((a, b) => a - b);
  return kept.map((i) => photos[i]!);
}

/** The embeddings of photos and their classes. */
async function embed(run: Run, loop: Loop, photos: Loader, size: number): Promise<Labeled> {
  const rows: Float32Array[] = [];
  const labels: number[] = [];
  for await (const batch of photos.epoch(0)) {
    rows.push(await loop.engine.embed(batch.start));
    labels.push(...batch.labels.map((label) => run.task.group(label)));
    await run.goOn();
  }
  return { size, rows: joined(rows, Float32Array), labels };
}

function median(values: number[]): number | null {
  if (!values.length) return null;
  const sorted = [...values].sort((a, b) => a - b);
  const middle = (sorted.length - 1) / 2;
  return (sorted[Math.floor(middle)]! + sorted[Math.ceil(middle)]!) / 2;
}
