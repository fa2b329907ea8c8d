/** Loss, accuracy and probabilities of logits; see tasks/classification.py, train/adjustment.py. */
import type { Score } from "../contract";

export function score(value: number, loss: number): Score {
  return { name: "accuracy", value, loss, style: ".1%" };
}

export function isBetter(found: Score, best: Score): boolean {
  return found.value > best.value || (found.value === best.value && found.loss < best.loss);
}

export function argmax(values: Float32Array, from: number, count: number): number {
  let best = 0;
  for (let i = 1; i < count; i++) if (values[from + i]! > values[from + best]!) best = i;
  return best;
}

/** Cross-entropy of `count` logits from `from` on, without overflow. */
export function crossEntropy(
  logits: Float32Array | Float64Array,
  from: number,
  count: number,
  label: number,
): number {
  let largest = -Infinity;
  for (let i = 0; i < count; i++) largest = Math.max(largest, logits[from + i]!);
  let total = 0;
  for (let i = 0; i < count; i++) total += Math.exp(logits[from + i]! - largest);
  return Math.log(total) - (logits[from + label]! - largest);
}

export function softmax(logits: Float32Array): Float32Array {
  const largest = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  const powers = Float64Array.from(logits, (value) => Math.exp(value - largest));
  const total = powers.reduce((a, b) => a + b, 0);
  return Float32Array.from(powers, (power) => power / total);
}

/** The weighted mean loss and accuracy of batches. */
export class Metric {
  images = 0;
  private loss = 0;
  private marks = 0;
  private weight = 0;

  /** Args: the weight of a photo of each class; by default, all weigh 1. */
  constructor(private readonly weights?: readonly number[]) {}

  update(logits: Float32Array, labels: readonly number[]): void {
    const classes = logits.length / labels.length;
    labels.forEach((label, i) => {
      const weight = this.weights?.[label] ?? 1;
      this.loss += weight * crossEntropy(logits, i * classes, classes, label);
      this.marks += weight * Number(argmax(logits, i * classes, classes) === label);
      this.weight += weight;
    });
    this.images += labels.length;
  }

  get score(): Score {
    return score(this.marks / this.weight, this.loss / this.weight);
  }
}

/**
 * What is added to the logits while a run trains on classes of uneven size, 0 on average; null if
 * nothing is.
 */
export function adjustment(
  labels: readonly number[],
  classes: number,
  balance: number,
): Float32Array | null {
  if (!balance) return null;
  const counts = countLabels(labels, classes);
  const offsets = counts.map((count) => balance * Math.log(Math.max(count, 1)));
  const mean = offsets.reduce((a, b) => a + b, 0) / classes;
  return Float32Array.from(offsets, (offset) => offset - mean);
}

export function countLabels(labels: readonly number[], classes: number): number[] {
  const counts = new Array<number>(classes).fill(0);
  for (const label of labels) counts[label]! += 1;
  return counts;
}
