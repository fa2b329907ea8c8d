/** The values that a run starts from; see device/train/start.py and refit.py. */
import type { Label, Score, State } from "../contract";
import { isLinear } from "./defaults";
import { copyState, Engine } from "./engine";
import { fitHead, type Head } from "./head/fit";
import type { Embeddings } from "./head/sums";
import { isBetter, Metric } from "./metric";
import { Purpose, Random } from "./random";
import type { Run } from "./run";

/** Most values of the embeddings that a classifier is computed from: 16 MB. */
const VALUES = 1 << 22;
/** Time for the classifier's photos; a part of many gives one that is nearly as good. */
const SECONDS = 300;

export interface Start {
  values: State;
  head: string;
  images: number;
  estimate: Score | null;
}

/** Computes the classifier from the training photos; one for the same classes is kept if better. */
export async function startValues(run: Run): Promise<Start> {
  const { kit, state, stateClasses, classes } = run.options;
  const { manifest } = kit;
  const kept = JSON.stringify(stateClasses) === JSON.stringify(classes);
  const values = kept ? copyState(state) : withNewHead(run, state);
  const start: Start = { values, head: kept ? "kept" : "random", images: 0, estimate: null };
  if (run.settings.head_start === "random" || !isLinear(manifest)) return start;
  const engine = new Engine(kit, values, classes.length);
  run.options.emit({ kind: "phase", phase: "features" });
  const embeddings = await embed(run, engine);
  await engine.release();
  run.options.emit({ kind: "phase", phase: "head" });
  const head = fitHead(embeddings);
  if (kept) {
    const score = scoreOf(values, manifest.task.head, embeddings);
    if (!head?.score || !isBetter(head.score, score)) {
      return { ...start, images: embeddings.labels.length, estimate: score };
    }
  }
  if (!head) return start;
  write(values, manifest.task.head, head);
  return { values, head: head.name, images: embeddings.labels.length, estimate: head.score };
}

/** Whether the classifier is computed again after the last step: its features have changed. */
export function isRefitted(run: Run): boolean {
  const { task, parameters } = run.manifest;
  return (
    run.settings.head_start !== "random" &&
    run.validate.length > 0 &&
    isLinear(run.manifest) &&
    parameters.some(({ name }) => !task.head.includes(name))
  );
}

/** The best closed form for the features that an engine computes now. */
export async function refit(run: Run, engine: Engine): Promise<Head | null> {
  const embeddings = await embed(run, engine);
  await engine.release();
  return fitHead(embeddings);
}

export function write(values: State, names: readonly string[], head: Head): void {
  const [weight, bias] = names as [string, string];
  const classes = head.bias.length;
  values.set(weight, { shape: [classes, head.weight.length / classes], data: head.weight });
  values.set(bias, { shape: [classes], data: head.bias });
}

/** Embeddings of the training photos, of as many as there is time and room for. */
async function embed(run: Run, engine: Engine): Promise<Embeddings> {
  const size = run.manifest.embeddings ?? 0;
  const most = Math.min(run.train.length, Math.max(1, Math.floor(VALUES / size)));
  const rows = new Float32Array(most * size);
  const labels: Label[] = [];
  const began = run.now();
  for await (const batch of run.sample(engine, most).epoch(0)) {
    rows.set(await engine.embed(batch.start), labels.length * size);
    labels.push(...batch.labels);
    const seconds = (run.now() - began) / 1000;
    run.progress(labels.length, most, seconds / labels.length, 1);
    await run.goOn();
    if (seconds > SECONDS) break;
  }
  return { size, rows: rows.subarray(0, labels.length * size), labels, task: run.task };
}

/** Weights are uniform in +-1 / sqrt(fan-in) and biases zero, as in TinyTL (Cai et al., 2020). */
function withNewHead(run: Run, state: State): State {
  const values = copyState(state);
  const random = new Random(run.settings.seed, Purpose.CLASSIFIER);
  for (const name of run.manifest.task.head) {
    const shape = [run.options.classes.length, ...state.get(name)!.shape.slice(1)];
    const inputs = shape.slice(1).reduce((a, b) => a * b, 1);
    const limit = shape.length > 1 ? 1 / Math.sqrt(inputs) : 0;
    const data = new Float32Array(shape[0]! * inputs);
    if (limit) for (let i = 0; i < data.length; i++) data[i] = random.uniform(-limit, limit);
    values.set(name, { shape, data });
  }
  return values;
}

function scoreOf(values: State, names: readonly string[], of: Embeddings): Score {
  const [weight, bias] = names.map((name) => values.get(name)!.data) as [
    Float32Array,
    Float32Array,
  ];
  const metric = new Metric(of.task);
  for (let i = 0; i < of.labels.length; i++) {
    const row = of.rows.subarray(i * of.size, (i + 1) * of.size);
    const logits = bias.map((b, c) => {
      let total = b;
      for (let j = 0; j < of.size; j++) total += row[j]! * weight[c * of.size + j]!;
      return total;
    });
    metric.update(logits, [of.labels[i]!]);
  }
  return metric.score;
}
