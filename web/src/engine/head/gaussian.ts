/** Classes as normal distributions of one covariance; see device/head/gaussian.py. */
import type { Label } from "../../contract";
import { type Basis, decompose } from "./basis";
import { type Form, type Layer, STRENGTHS } from "./form";
import { add, dot, type Matrix, onto, row, times, zeros } from "./matrix";
import { type Embeddings, embedding, less, type Sums } from "./sums";

/** Lead of a photo's own class where no class has two different photos; as in Python. */
const UNSCATTERED = 5;

/** The nearest class mean: the score of class c for x is m_c (x - m_c / 2) / variance. */
export class Means implements Form {
  readonly name = "class means";
  readonly strengths = [Infinity];
  private readonly means: Matrix;
  private readonly precision: number;
  private readonly lengths: Float64Array;

  constructor(
    of: Embeddings,
    private readonly sums: Sums,
  ) {
    this.means = centered(sums);
    let squares = 0;
    for (const values of within(of, sums)) squares += dot(values, values);
    const lengths = lengthsOf(this.means);
    const variance = total(lengths) / Math.max(sums.present - 1, 1);
    const unscattered = variance ? UNSCATTERED / variance : 1;
    this.precision = squares ? (free(sums) * of.size) / squares : unscattered;
    this.lengths = far(
      lengths.map((length) => this.precision * length),
      sums,
    );
  }

  leftOut(values: Float32Array, given: Label): Float64Array[] {
    const label = this.sums.task.group(given);
    const off = less(values, row(this.sums.means, label));
    const scaled = (vector: Float64Array) =>
      onto(this.means, vector).map((value) => this.precision * value);
    const own = scaled(row(this.means, label));
    const length = this.precision * dot(off, off);
    return [scores(own, this.lengths, scaled(off), length, label, this.sums.counts, 0)];
  }

  layer(): Layer {
    const weight = { ...this.means, data: this.means.data.map((v) => this.precision * v) };
    return withBias(weight, this.lengths, this.sums);
  }
}

/** Linear discriminant analysis with a ridge on the covariance, equal priors. */
export class LDA implements Form {
  readonly name = "LDA";
  readonly strengths = STRENGTHS;
  private readonly means: Matrix;
  private readonly basis: Basis;
  /** The means along the axes of the basis. */
  private readonly rotated: Matrix;
  private readonly squares: Float64Array;
  private readonly free: number;
  private readonly unit: number;
  private readonly products: Matrix;

  constructor(
    of: Embeddings,
    private readonly sums: Sums,
  ) {
    this.means = centered(sums);
    this.basis = decompose(within(of, sums), of.size);
    this.rotated = rotate(this.means, this.basis.axes);
    this.squares = lengthsOf(this.means);
    this.free = free(sums);
    this.unit = total(this.basis.squares) / Math.max(of.size, 1) || 1;
    this.products = zeros(this.means.rows, this.means.rows);
    for (let c = 0; c < this.means.rows; c++) {
      row(this.products, c).set(onto(this.means, row(this.means, c)));
    }
  }

  leftOut(values: Float32Array, given: Label): Float64Array[] {
    const { counts, task } = this.sums;
    const label = task.group(given);
    const off = onto(this.basis.axes, less(values, row(this.sums.means, label)));
    const lost = counts[label]! / Math.max(counts[label]! - 1, 1);
    return this.strengths.map((strength) => {
      const ridge = strength * this.unit;
      const share = this.share(ridge);
      const own = onto(this.rotated, product(row(this.rotated, label), share));
      const between = row(this.products, label);
      for (let c = 0; c < own.length; c++) {
        own[c] = ((between[c]! - own[c]!) * this.free) / ridge;
      }
      const turned = off.map((v, j) => (v * this.free) / (this.basis.squares[j]! + ridge));
      const shifts = onto(this.rotated, turned);
      const length = dot(off, turned);
      const change = lost / Math.max(this.free - lost * length, 1e-9 * this.free);
      return scores(own, this.lengths(ridge), shifts, length, label, counts, change);
    });
  }

  layer(index: number): Layer {
    const ridge = this.strengths[index]! * this.unit;
    const share = this.share(ridge);
    const weight = zeros(this.means.rows, this.means.columns);
    for (let c = 0; c < weight.rows; c++) {
      const inside = times(product(row(this.rotated, c), share), this.basis.axes);
      const values = row(weight, c);
      add(values, row(this.means, c), this.free / ridge);
      add(values, inside, -this.free / ridge);
    }
    return withBias(weight, this.lengths(ridge), this.sums);
  }

  /** The share of the covariance along each axis; the ridge is the rest. */
  private share(ridge: number): Float64Array {
    return this.basis.squares.map((square) => square / (square + ridge));
  }

  /** M P m of the means m, with P the inverse covariance. */
  private lengths(ridge: number): Float64Array {
    const share = this.share(ridge);
    const lengths = this.squares.map((square, c) => {
      const values = row(this.rotated, c);
      return (this.free / ridge) * (square - dot(product(values, values), share));
    });
    return far(lengths, this.sums);
  }
}

/**
 * m P m of the means, and twice the largest of these for classes without photos, whose mean is in
 * the middle of all, so that nothing else would keep them from being predicted.
 */
function far(squares: Float64Array, sums: Sums): Float64Array {
  const largest = squares.reduce((most, each) => Math.max(most, each), 0);
  return squares.map((square, c) => (sums.counts[c] ? square : 2 * largest));
}

/** Embeddings less the mean of their classes. */
function* within(of: Embeddings, sums: Sums): Iterable<Float64Array> {
  for (let i = 0; i < of.labels.length; i++) {
    yield less(embedding(of, i), row(sums.means, of.task.group(of.labels[i]!)));
  }
}

/**
 * Scores of a photo by the means and the covariance of all others. With P the inverse covariance, m
 * the means, and d the photo less the mean of its class: m P m of that mean with each class's, m P m
 * of each mean with itself, m P d, d P d, and g, where the inverse without the photo is
 * P + g P d d P.
 */
function scores(
  means: Float64Array,
  squares: Float64Array,
  shifts: Float64Array,
  length: number,
  label: number,
  counts: readonly number[],
  change: number,
): Float64Array {
  const own = shifts[label]!;
  const result = new Float64Array(means.length);
  for (let c = 0; c < result.length; c++) {
    const shift = shifts[c]!;
    result[c] =
      means[c]! + shift - 0.5 * squares[c]! + change * shift * (own + length - 0.5 * shift);
  }
  const moved = 1 / Math.max(counts[label]! - 1, 1);
  const longer = (1 + 0.5 * moved) * length;
  const away = own - moved * length;
  result[label] =
    0.5 * squares[label]! + own - moved * longer + change * away * (0.5 * own + longer);
  return result;
}

function withBias(weight: Matrix, squares: Float64Array, sums: Sums): Layer {
  const bias = onto(weight, sums.mean).map((value, c) => -0.5 * squares[c]! - value);
  return { weight, bias };
}

function centered(sums: Sums): Matrix {
  const means = zeros(sums.means.rows, sums.means.columns);
  for (let c = 0; c < means.rows; c++) row(means, c).set(less(row(sums.means, c), sums.mean));
  return means;
}

/** Rows along the axes of a basis. */
function rotate(matrix: Matrix, axes: Matrix): Matrix {
  const result = zeros(matrix.rows, axes.rows);
  for (let i = 0; i < matrix.rows; i++) row(result, i).set(onto(axes, row(matrix, i)));
  return result;
}

function lengthsOf(matrix: Matrix): Float64Array {
  return Float64Array.from({ length: matrix.rows }, (_, c) => dot(row(matrix, c), row(matrix, c)));
}

function product(a: Float64Array, b: Float64Array): Float64Array {
  return a.map((value, j) => value * b[j]!);
}

function free(sums: Sums): number {
  return Math.max(sums.images - sums.present, 1);
}

function total(values: Float64Array): number {
  return values.reduce((a, b) => a + b, 0);
}
