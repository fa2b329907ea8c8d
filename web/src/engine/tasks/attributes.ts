/** Any number of attributes for each photo; see tasks/attributes.py. */
import type { Label } from "../../contract";
import { bytes } from "../session";
import type { Logits, Task } from "./task";

/** A label is 1 for each attribute that a photo has, and 0 for each other. */
export class Attributes implements Task {
  readonly groups = 1;
  readonly questions: number;
  readonly choices = 2;

  constructor(readonly outputs: number) {
    this.questions = outputs;
  }

  group(): number {
    return 0;
  }

  target(label: Label, output: number): number {
    return 2 * label[output]! - 1;
  }

  feed(labels: readonly Label[]) {
    return bytes(Uint8Array.from(labels.flat()), [labels.length, this.outputs]);
  }

  /** Binary cross-entropy, the mean over the attributes, without overflow. */
  loss(logits: Logits, from: number, label: Label): number {
    let total = 0;
    for (let i = 0; i < this.outputs; i++) {
      const value = logits[from + i]!;
      total += Math.max(value, 0) + Math.log1p(Math.exp(-Math.abs(value))) - label[i]! * value;
    }
    return total / this.outputs;
  }

  answers(logits: Logits, from: number): Label {
    return Array.from({ length: this.outputs }, (_, i) => Number(logits[from + i]! > 0));
  }

  /** Each by itself. */
  probabilities(logits: Float32Array): Float32Array {
    return logits.map((value) => 1 / (1 + Math.exp(-value)));
  }

  probabilityOf(probabilities: Float32Array, question: number, answer: number): number {
    return answer ? probabilities[question]! : 1 - probabilities[question]!;
  }
}
