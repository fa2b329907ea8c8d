/** What photos of a run's classes look like, to tell photos of none; see device/use/known.py. */
import type { Known, Tensor } from "../contract";
import { type Basis, decompose } from "./head/basis";
import { columnsOf, dot, type Matrix, row, rowsOf, times, zeros } from "./head/matrix";

const KEPT = 0.95;
const DIRECTIONS = 16;
const SHRINKAGE = 0.3;
const FOLDS = 5;
const ENOUGH = 20;
/** The least threshold: photos that are all alike have no distances. */
const LEAST = 1e-6;

/** Embeddings of photos and the class of each. */
export interface Labeled {
  size: number;
  rows: Float32Array;
  labels: number[];
}

const rowOf = ({ rows, size }: { rows: Float32Array; size: number }, i: number) =>
  rows.subarray(i * size, (i + 1) * size);

/** Describes classes; validation photos choose the threshold if they are 20 or more. */
export function fitKnown(of: Labeled, heldOut: Float32Array): Known {
  const known = describe(of);
  const count = heldOut.length / of.size;
  const distances = count >= ENOUGH ? distancesOf(known, heldOut) : leftOut(of);
  known.threshold.data[0] = Math.max(quantile(distances, KEPT), LEAST);
  return known;
}

/** One minus the cosine of the angle to the nearest class mean, for embeddings (N, D). */
export function distancesOf(known: Known, rows: Float32Array): Float32Array {
  const size = known.center.shape[0]!;
  const mapped = map(known, rows);
  const result = new Float32Array(rows.length / size);
  for (let i = 0; i < result.length; i++) {
    const values = rowOf({ rows: mapped, size }, i);
    let nearest = -Infinity;
    for (let k = 0; k < known.means.shape[0]!; k++) {
      nearest = Math.max(nearest, dot(values, rowOf({ rows: known.means.data, size }, k)));
    }
    result[i] = Math.max(0, 1 - nearest); // rounding gives equal photos a little less
  }
  return result;
}

function describe(of: Labeled): Known {
  const { size, labels } = of;
  const classes = [...new Set(labels)].sort((a, b) => a - b);
  const means = zeros(classes.length, size);
  const counts = new Array<number>(classes.length).fill(0);
  const group = labels.map((label) => classes.indexOf(label));
  group.forEach((k, i) => {
    counts[k]! += 1;
    const values = rowOf(of, i);
    for (let j = 0; j < size; j++) means.data[k * size + j]! += values[j]!;
  });
  for (let k = 0; k < classes.length; k++) {
    for (let j = 0; j < size; j++) means.data[k * size + j]! /= counts[k]!;
  }
  const center = new Float64Array(size);
  for (let k = 0; k < classes.length; k++) {
    for (let j = 0; j < size; j++) center[j]! += means.data[k * size + j]! / classes.length;
  }
  const within = zeros(labels.length, size);
  group.forEach((k, i) => {
    const values = rowOf(of, i);
    for (let j = 0; j < size; j++)
      within.data[i * size + j] = values[j]! - means.data[k * size + j]!;
  });
  const { axes, squares } = principal(within);
  const spread = squares.map((square) => square / Math.max(1, labels.length - classes.length));
  const rank = axes.length;
  const total = spread.reduce((a, b) => a + b, 0);
  const shrunk = (SHRINKAGE * total) / size;
  const rest = spread.slice(rank).reduce((a, b) => a + b, 0) / Math.max(1, size - rank);
  const across = (1 - SHRINKAGE) * rest + shrunk;
  const gains = spread.slice(0, rank).map((value) => {
    const along = (1 - SHRINKAGE) * value + shrunk;
    return across > 0 ? Math.sqrt(across / Math.max(along, 1e-30)) - 1 : 0;
  });
  const directions = new Float32Array(rank * size);
  axes.forEach((axis, r) => directions.set(axis, r * size));
  const known: Known = {
    center: tensor([size], Float32Array.from(center)),
    directions: tensor([rank, size], directions),
    gains: tensor([rank], Float32Array.from(gains)),
    means: tensor([classes.length, size], new Float32Array(0)),
    threshold: tensor([], Float32Array.of(Infinity)),
  };
  known.means.data = map(known, means.data);
  return known;
}

/** The first directions of the largest variance of rows, and all sums of squares, largest first. */
function principal(values: Matrix) {
  const wide = values.rows < values.columns;
  const basis: Basis = wide
    ? decompose(columnsOf(values), values.rows)
    : decompose(rowsOf(values), values.columns);
  const squares = [...basis.squares].reverse();
  const axes = squares.slice(0, DIRECTIONS).map((square, r) => {
    const axis = row(basis.axes, basis.axes.rows - 1 - r);
    return wide ? times(axis, values).map((value) => value / Math.sqrt(square)) : axis;
  });
  return { axes, squares };
}

/** Vectors (N, D) around the center, with some directions shrunk, of length 1. */
function map(known: Known, rows: ArrayLike<number>): Float32Array {
  const size = known.center.shape[0]!;
  const mapped = new Float32Array(rows.length);
  const centered = new Float64Array(size);
  for (let start = 0; start < rows.length; start += size) {
    for (let j = 0; j < size; j++) centered[j] = rows[start + j]! - known.center.data[j]!;
    const turned = known.gains.data.map((gain, r) => {
      return gain * dot(centered, rowOf({ rows: known.directions.data, size }, r));
    });
    turned.forEach((value, r) => {
      const axis = rowOf({ rows: known.directions.data, size }, r);
      for (let j = 0; j < size; j++) centered[j]! += value * axis[j]!;
    });
    const length = Math.max(Math.sqrt(dot(centered, centered)), 1e-30);
    for (let j = 0; j < size; j++) mapped[start + j] = centered[j]! / length;
  }
  return mapped;
}

/** Distances of photos by a description that they are not in, of each fifth in turn. */
function leftOut(of: Labeled): Float32Array {
  const seen = new Map<number, number[]>();
  of.labels.forEach((label, i) => seen.set(label, [...(seen.get(label) ?? []), i]));
  // The only photo of a class is in all: without it, its class would be as far as any other.
  const classes = [...seen.values()].filter((own) => own.length > 1);
  const distances: number[] = [];
  for (let fold = 0; fold < FOLDS; fold++) {
    const outside = classes.flatMap((own) => own.filter((_, place) => place % FOLDS === fold));
    if (!outside.length) continue;
    const inside = of.labels.flatMap((_, i) => (outside.includes(i) ? [] : [i]));
    const described = describe(subset(of, inside));
    distances.push(...distancesOf(described, subset(of, outside).rows));
  }
  // A single photo of each class says nothing of the others: accept all.
  return Float32Array.from(distances.length ? distances : [2]);
}

function subset(of: Labeled, indices: number[]): Labeled {
  const rows = new Float32Array(indices.length * of.size);
  indices.forEach((i, k) => rows.set(rowOf(of, i), k * of.size));
  return { size: of.size, rows, labels: indices.map((i) => of.labels[i]!) };
}

/** As numpy's, by linear interpolation. */
function quantile(values: Float32Array, share: number): number {
  const sorted = values.slice().sort();
  const place = share * (sorted.length - 1);
  const low = Math.floor(place);
  const high = Math.min(low + 1, sorted.length - 1);
  return sorted[low]! + (place - low) * (sorted[high]! - sorted[low]!);
}

function tensor(shape: number[], data: Float32Array): Tensor {
  return { shape, data };
}
