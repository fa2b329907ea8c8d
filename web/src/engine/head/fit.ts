/** Choose the output layer in closed form, by leave-one-out; see device/head/fit.py, trial.py. */
import type { Score } from "../../contract";
import { score } from "../metric";
import { marks } from "../tasks";
import type { Form } from "./form";
import { LDA, Means } from "./gaussian";
import { Projection, RANK } from "./projection";
import { Ridge } from "./ridge";
import { addUp, type Embeddings, embedding, type Sums } from "./sums";

/** An output layer in closed form. */
export interface Head {
  /** (outputs, size) and (outputs,). */
  weight: Float32Array;
  bias: Float32Array;
  name: Form["name"];
  strength: number;
  /** Of each photo by the layer that is fitted to all others; null if no class has two. */
  score: Score | null;
}

/** Factors on the outputs: powers of 2. */
const TEMPERATURES = Array.from({ length: 21 }, (_, i) => 2 ** (i - 10));

/** The closed form of the lowest loss; null without photos. */
export function fitHead(of: Embeddings): Head | null {
  if (!of.labels.length) return null;
  let best: { loss: number; head: Head } | null = null;
  for (const { form, rows, sums, projection } of forms(of)) {
    const verdict = tryOut(form, rows, sums);
    const { chosen, factor } = verdict ?? { chosen: 0, factor: 1 };
    const loss = verdict?.loss ?? Infinity;
    if (best && loss >= best.loss) continue;
    const own = form.layer(chosen);
    const { weight, bias } = projection ? projection.layer(own) : own;
    const head = {
      weight: Float32Array.from(weight.data, (value) => factor * value),
      bias: Float32Array.from(bias, (value) => factor * value),
      name: form.name,
      strength: form.strengths[chosen]!,
      score: verdict?.score ?? null,
    };
    best = { loss, head };
  }
  return best?.head ?? null;
}

interface Candidate {
  form: Form;
  rows: Embeddings;
  sums: Sums;
  projection: Projection | null;
}

/** Class means are of whole embeddings, LDA and ridge of their main directions; see docs/head.md. */
function* forms(of: Embeddings): Iterable<Candidate> {
  const whole = addUp(of);
  const { groups, outputs } = of.task;
  const classes = groups === outputs && outputs > 1;
  if (classes) yield { form: new Means(of, whole), rows: of, sums: whole, projection: null };
  if (whole.images < 2) return;
  const projection = of.size > RANK ? new Projection(of, whole) : null;
  const rows = projection ? projection.apply(of) : of;
  const sums = projection ? addUp(rows) : whole;
  if (classes && sums.images > sums.present) {
    yield { form: new LDA(rows, sums), rows, sums, projection };
  }
  yield { form: new Ridge(rows, sums), rows, sums, projection };
}

interface Verdict {
  chosen: number;
  factor: number;
  loss: number;
  score: Score;
}

/** The best strength of a form; null if no photo can be left out, the only one of its class. */
function tryOut(form: Form, of: Embeddings, sums: Sums): Verdict | null {
  const trials = form.strengths.map(() => ({
    weighted: new Float64Array(TEMPERATURES.length),
    alike: new Float64Array(TEMPERATURES.length),
    marks: 0,
  }));
  const { task } = of;
  let [weight, images] = [0, 0];
  for (let i = 0; i < of.labels.length; i++) {
    const label = of.labels[i]!;
    const group = task.group(label);
    if (sums.counts[group]! < 2 && task.groups > 1) continue;
    const own = sums.weights[group]!;
    weight += own;
    images += 1;
    form.leftOut(embedding(of, i), label).forEach((exact, s) => {
      const outputs = Float32Array.from(exact);
      const trial = trials[s]!;
      trial.marks += marks(task, outputs, 0, label);
      TEMPERATURES.forEach((factor, t) => {
        const scaled = Float64Array.from(outputs, (value) => factor * value);
        const loss = task.loss(scaled, 0, label);
        trial.weighted[t]! += own * loss;
        trial.alike[t]! += loss;
      });
    });
  }
  if (!images) return null;
  const lowest = trials.map((trial) => Math.min(...trial.weighted));
  const chosen = lowest.indexOf(Math.min(...lowest));
  const trial = trials[chosen]!;
  const each = trial.weighted.map((loss) => loss / weight);
  // So many photos, even all predicted correctly, are no evidence for a lower loss.
  const floor = 1 / (images + 2);
  const floored = each.map((loss) => Math.max(loss, floor));
  const near = floored.indexOf(Math.min(...floored));
  const found = lowestPoint(each, near);
  return {
    chosen,
    factor: found.factor,
    loss: Math.min(found.loss, ...each),
    score: score(trial.marks / (images * task.questions), trial.alike[near]! / images),
  };
}

/** The lowest point of the parabola through the loss at a factor and its two neighbors. */
function lowestPoint(losses: Float64Array, near: number): { factor: number; loss: number } {
  const [below, middle, above] = [losses[near - 1], losses[near]!, losses[near + 1]];
  const plain = { factor: TEMPERATURES[near]!, loss: middle };
  if (below === undefined || above === undefined || below <= middle || above < middle) return plain;
  const bend = below - 2 * middle + above;
  const step = bend > 0 ? (0.5 * (below - above)) / bend : 0;
  return { factor: plain.factor * 2 ** step, loss: middle - 0.25 * (below - above) * step };
}
