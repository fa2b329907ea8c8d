/** What the closed forms need to know of the embeddings first; see device/head/sums.py. */
import { countLabels } from "../metric";
import { add, type Matrix, row, zeros } from "./matrix";

/** Embeddings of labeled photos, a row for each. */
export interface Embeddings {
  size: number;
  rows: Float32Array;
  labels: number[];
  classes: number;
}

export interface Sums {
  /** Photos of each class. */
  counts: number[];
  /** Mean embedding of each class; 0 for a class without photos. */
  means: Matrix;
  /** Mean of the classes' means, each class counting alike. */
  mean: Float64Array;
  /** Mean target of the classes that have photos: 1 divided by their number, or 0. */
  targets: Float64Array;
  /** Weight of a photo of each class: classes weigh alike, and photos 1 on average. */
  weights: Float64Array;
  images: number;
  /** Classes that have photos. */
  present: number;
}

export function embedding(of: Embeddings, index: number): Float32Array {
  return of.rows.subarray(index * of.size, (index + 1) * of.size);
}

export function addUp(of: Embeddings): Sums {
  const { size, labels, classes } = of;
  const counts = countLabels(labels, classes);
  const present = counts.filter((count) => count > 0).length;
  const means = zeros(classes, size);
  labels.forEach((label, i) => add(row(means, label), embedding(of, i), 1));
  const mean = new Float64Array(size);
  counts.forEach((count, label) => {
    if (!count) return;
    const values = row(means, label);
    for (let j = 0; j < size; j++) values[j]! /= count;
    add(mean, values, 1);
  });
  for (let j = 0; j < size; j++) mean[j]! /= present;
  return {
    counts,
    means,
    mean,
    targets: Float64Array.from(counts, (count) => (count ? 1 / present : 0)),
    weights: Float64Array.from(counts, (n) => labels.length / (present * Math.max(n, 1))),
    images: labels.length,
    present,
  };
}

/** An embedding less another vector. */
export function less(values: ArrayLike<number>, other: Float64Array): Float64Array {
  const result = new Float64Array(other.length);
  for (let j = 0; j < result.length; j++) result[j] = values[j]! - other[j]!;
  return result;
}
