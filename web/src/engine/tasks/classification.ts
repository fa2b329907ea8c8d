/** One class for each photo; see tasks/classification.py. */
import type { Label } from "../../contract";
import { whole } from "../session";
import type { Logits, Task } from "./task";

/** A label is the index of the class. */
export class Classification implements Task {
  readonly groups: number;
  readonly questions = 1;
  readonly choices: number;

  constructor(readonly outputs: number) {
    this.groups = this.choices = outputs;
  }

  group(label: Label): number {
    return label[0]!;
  }

  target(label: Label, output: number): number {
    return Number(label[0] === output);
  }

  feed(labels: readonly Label[]) {
    return whole(labels.flat());
  }

  /** Cross-entropy, without overflow. */
  loss(logits: Logits, from: number, label: Label): number {
    let largest = -Infinity;
    for (let i = 0; i < this.outputs; i++) largest = Math.max(largest, logits[from + i]!);
    let total = 0;
    for (let i = 0; i < this.outputs; i++) total += Math.exp(logits[from + i]! - largest);
    return Math.log(total) - (logits[from + label[0]!]! - largest);
  }

  answers(logits: Logits, from: number): Label {
    let best = 0;
    for (let i = 1; i < this.outputs; i++) if (logits[from + i]! > logits[from + best]!) best = i;
    return [best];
  }

  /** They add up to 1. */
  probabilities(logits: Float32Array): Float32Array {
    const largest = logits.reduce((a, b) => Math.max(a, b), -Infinity);
    const powers = Float64Array.from(logits, (value) => Math.exp(value - largest));
    const total = powers.reduce((a, b) => a + b, 0);
    return Float32Array.from(powers, (power) => power / total);
  }

  probabilityOf(probabilities: Float32Array, _question: number, answer: number): number {
    return probabilities[answer]!;
  }
}
