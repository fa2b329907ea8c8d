/** What a network learns, from labels to predictions; see tasks/base.py. */
import type { Label } from "../../contract";
import type { Feeds } from "../session";

export type Logits = Float32Array | Float64Array;

export interface Task {
  /** Outputs of the network: the classes, or the attributes. */
  readonly outputs: number;
  /** Groups of photos that count alike: the classes; a single group for attributes. */
  readonly groups: number;
  /** Answers of a label, and how many there are to choose from for each. */
  readonly questions: number;
  readonly choices: number;
  /** The group of a photo. */
  group(label: Label): number;
  /** The output that a least-squares fit of the output layer should give. */
  target(label: Label, output: number): number;
  /** The labels of a batch, as a step takes them. */
  feed(labels: readonly Label[]): Feeds[string];
  /** The loss of a photo whose logits begin at `from`, without label smoothing. */
  loss(logits: Logits, from: number, label: Label): number;
  /** The label that these logits predict. */
  answers(logits: Logits, from: number): Label;
  /** The probabilities of one photo. */
  probabilities(logits: Float32Array): Float32Array;
  /** The probability of an answer to a question. */
  probabilityOf(probabilities: Float32Array, question: number, answer: number): number;
}

/** How many of the answers these logits have right. */
export function marks(task: Task, logits: Logits, from: number, label: Label): number {
  const found = task.answers(logits, from);
  return label.filter((answer, question) => answer === found[question]).length;
}
