/** Loss and accuracy of logits; see tasks/results.py and train/adjustment.py. */
import type { Label, Score } from "../contract";
import { marks, type Task } from "./tasks";

export function score(value: number, loss: number): Score {
  return { name: "accuracy", value, loss, style: ".1%" };
}

export function isBetter(found: Score, best: Score): boolean {
  return found.value > best.value || (found.value === best.value && found.loss < best.loss);
}

/**
 * The weighted mean loss and accuracy of batches. Each group is summed alone, so that networks with
 * equal recalls have the same accuracy to the bit, and their losses decide.
 */
export class Metric {
  images = 0;
  private readonly sums: { loss: number; marks: number; photos: number }[];

  /** Args: the task; the weight of a photo of each group; by default, all weigh 1. */
  constructor(
    private readonly task: Task,
    private readonly weights?: readonly number[],
  ) {
    this.sums = Array.from({ length: task.groups }, () => ({ loss: 0, marks: 0, photos: 0 }));
  }

  update(logits: Float32Array, labels: readonly Label[]): void {
    const { task } = this;
    labels.forEach((label, i) => {
      const sums = this.sums[task.group(label)]!;
      sums.loss += task.loss(logits, i * task.outputs, label);
      sums.marks += marks(task, logits, i * task.outputs, label);
      sums.photos += 1;
    });
    this.images += labels.length;
  }

  get score(): Score {
    const photos = this.weighted("photos");
    const value = this.weighted("marks") / (photos * this.task.questions);
    return score(value, this.weighted("loss") / photos);
  }

  private weighted(what: "loss" | "marks" | "photos"): number {
    return this.sums.reduce(
      (all, sums, group) => all + (this.weights?.[group] ?? 1) * sums[what],
      0,
    );
  }
}

/**
 * What is added to the logits while a run trains on classes of uneven size, 0 on average; null if
 * nothing is.
 */
export function adjustment(counts: readonly number[], balance: number): Float32Array | null {
  if (!balance) return null;
  const offsets = counts.map((count) => balance * Math.log(Math.max(count, 1)));
  const mean = offsets.reduce((a, b) => a + b, 0) / offsets.length;
  return Float32Array.from(offsets, (offset) => offset - mean);
}

/** Photos of each group. */
export function countGroups(task: Task, labels: readonly Label[]): number[] {
  const counts = new Array<number>(task.groups).fill(0);
  for (const label of labels) counts[task.group(label)]! += 1;
  return counts;
}
