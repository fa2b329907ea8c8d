/** What the closed forms need to know of the embeddings first; see device/head/sums.py. */
import type { Label } from "../../contract";
import { countGroups } from "../metric";
import type { Task } from "../tasks";
import { add, type Matrix, row, zeros } from "./matrix";

/** Embeddings of labeled photos, a row for each. */
export interface Embeddings {
  size: number;
  rows: Float32Array;
  labels: Label[];
  task: Task;
}

export interface Sums {
  task: Task;
  /** Photos of each group. */
  counts: number[];
  /** Mean embedding of each group; of one without photos, the mean of the others. */
  means: Matrix;
  /** Mean of the groups' means, each group counting alike. */
  mean: Float64Array;
  /** Mean target for each output, each group counting alike. */
  targets: Float64Array;
  /** Weight of a photo of each group: groups weigh alike, and photos 1 on average. */
  weights: Float64Array;
  images: number;
  /** Groups that have photos. */
  present: number;
}

export function embedding(of: Embeddings, index: number): Float32Array {
  return of.rows.subarray(index * of.size, (index + 1) * of.size);
}

export function addUp(of: Embeddings): Sums {
  const { size, labels, task } = of;
  const counts = countGroups(task, labels);
  const present = counts.filter((count) => count > 0).length;
  const weights = Float64Array.from(counts, (n) => labels.length / (present * Math.max(n, 1)));
  const targets = new Float64Array(task.outputs);
  const means = zeros(task.groups, size);
  labels.forEach((label, i) => {
    const group = task.group(label);
    add(row(means, group), embedding(of, i), 1);
    const share = weights[group]! / labels.length;
    for (let k = 0; k < targets.length; k++) targets[k]! += share * task.target(label, k);
  });
  const mean = new Float64Array(size);
  counts.forEach((count, group) => {
    if (!count) return;
    const values = row(means, group);
    for (let j = 0; j < size; j++) values[j]! /= count;
    add(mean, values, 1);
  });
  for (let j = 0; j < size; j++) mean[j]! /= present;
  counts.forEach((count, group) => {
    if (!count) row(means, group).set(mean);
  });
  return { task, counts, means, mean, targets, weights, images: labels.length, present };
}

/** An embedding less another vector. */
export function less(values: ArrayLike<number>, other: Float64Array): Float64Array {
  const result = new Float64Array(other.length);
  for (let j = 0; j < result.length; j++) result[j] = values[j]! - other[j]!;
  return result;
}
