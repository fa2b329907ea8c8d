/**
 * Eigenvalues and eigenvectors of a symmetric matrix: Householder's reduction to three diagonals and
 * QL steps with implicit shifts (Golub and Van Loan, Matrix Computations, sections 8.3.1 and 8.3.3).
 */
import type { Matrix } from "./matrix";

const STEPS = 60;

export interface Eigen {
  /** In ascending order. */
  values: Float64Array;
  /** A row for each value, orthonormal. */
  vectors: Matrix;
}

/** The upper triangle alone is read; the matrix is overwritten. */
export function eigen(matrix: Matrix): Eigen {
  const n = matrix.rows;
  const diagonal = new Float64Array(n);
  const beside = new Float64Array(n);
  const rows = tridiagonal(matrix, diagonal, beside);
  for (let i = 0; i < n; i++) isolate(i, diagonal, beside, rows);
  const order = Array.from(diagonal.keys()).sort((a, b) => diagonal[a]! - diagonal[b]!);
  const vectors = { rows: n, columns: n, data: new Float64Array(n * n) };
  order.forEach((from, to) => vectors.data.set(rows[from]!, to * n));
  return { values: Float64Array.from(order, (i) => diagonal[i]!), vectors };
}

/**
 * Reduces to three diagonals; `beside[i]` is between i and i + 1. Returns the rows of the rotation
 * Q' for which Q' A Q has these diagonals.
 */
function tridiagonal(matrix: Matrix, diagonal: Float64Array, beside: Float64Array): Float64Array[] {
  const n = matrix.rows;
  const a = Array.from({ length: n }, (_, i) => matrix.data.subarray(i * n, (i + 1) * n));
  for (let i = 0; i < n; i++) for (let j = 0; j < i; j++) a[i]![j] = a[j]![i]!;
  const mirrors: (Float64Array | null)[] = [];
  for (let k = 0; k < n - 1; k++) {
    const mirror = mirrorOf(a[k]!, k + 1);
    mirrors.push(mirror);
    if (mirror) applyTwice(a, mirror, k + 1);
    diagonal[k] = a[k]![k]!;
    beside[k] = a[k]![k + 1]!;
  }
  if (n) diagonal[n - 1] = a[n - 1]![n - 1]!;
  // Q' is the product of the mirrors, the last one first; in the matrix's memory.
  for (let i = 0; i < n; i++) a[i]!.fill(0)[i] = 1;
  for (let k = mirrors.length - 1; k >= 0; k--) {
    const mirror = mirrors[k];
    // From the right: rows times (I - 2 v v'); rows above k + 1 are still those of the identity.
    if (mirror) for (let i = k + 1; i < n; i++) reflect(a[i]!, mirror, k + 1);
  }
  return a;
}

/** The unit vector v for which I - 2 v v' maps a row, from `start` on, to its first axis. */
function mirrorOf(values: Float64Array, start: number): Float64Array | null {
  const n = values.length;
  let rest = 0;
  for (let j = start + 1; j < n; j++) rest += values[j]! * values[j]!;
  if (rest === 0) return null;
  const first = values[start]!;
  const length = Math.sqrt(first * first + rest);
  const head = first + (first < 0 ? -length : length);
  const norm = Math.sqrt(head * head + rest);
  const mirror = new Float64Array(n);
  mirror[start] = head / norm;
  for (let j = start + 1; j < n; j++) mirror[j] = values[j]! / norm;
  return mirror;
}

/** A - 2 v w' - 2 w v', with w = A v - v (v' A v): the mirror from both sides. */
function applyTwice(a: Float64Array[], v: Float64Array, start: number): void {
  const n = v.length;
  const w = new Float64Array(n);
  for (let i = start - 1; i < n; i++) {
    let total = 0;
    const values = a[i]!;
    for (let j = start; j < n; j++) total += values[j]! * v[j]!;
    w[i] = total;
  }
  let middle = 0;
  for (let j = start; j < n; j++) middle += v[j]! * w[j]!;
  for (let j = start; j < n; j++) w[j]! -= middle * v[j]!;
  for (let i = start - 1; i < n; i++) {
    const values = a[i]!;
    const [vi, wi] = [2 * v[i]!, 2 * w[i]!];
    for (let j = start - 1; j < n; j++) values[j]! -= vi * w[j]! + wi * v[j]!;
  }
}

function reflect(values: Float64Array, v: Float64Array, start: number): void {
  let total = 0;
  for (let j = start; j < v.length; j++) total += values[j]! * v[j]!;
  if (!total) return;
  for (let j = start; j < v.length; j++) values[j]! -= 2 * total * v[j]!;
}

/** QL steps until the value at `low` stands alone; the rows are rotated with it. */
function isolate(
  low: number,
  diagonal: Float64Array,
  beside: Float64Array,
  rows: Float64Array[],
): void {
  const n = diagonal.length;
  for (let step = 0; ; step++) {
    let end = low;
    while (end < n - 1) {
      const near = Math.abs(diagonal[end]!) + Math.abs(diagonal[end + 1]!);
      if (Math.abs(beside[end]!) <= Number.EPSILON * near) break;
      end += 1;
    }
    if (end === low || step === STEPS) return;
    sweep(low, end, diagonal, beside, rows);
  }
}

/** One QL step with Wilkinson's shift on the rows from `low` to `end`. */
function sweep(
  low: number,
  end: number,
  d: Float64Array,
  e: Float64Array,
  rows: Float64Array[],
): void {
  const half = (d[low + 1]! - d[low]!) / (2 * e[low]!);
  const root = Math.hypot(half, 1);
  let g = d[end]! - d[low]! + e[low]! / (half + (half < 0 ? -root : root));
  let [sine, cosine, shift] = [1, 1, 0];
  for (let i = end - 1; i >= low; i--) {
    const f = sine * e[i]!;
    const b = cosine * e[i]!;
    const r = Math.hypot(f, g);
    e[i + 1] = r;
    if (r === 0) {
      d[i + 1]! -= shift;
      e[end] = 0;
      return;
    }
    sine = f / r;
    cosine = g / r;
    const over = d[i + 1]! - shift;
    const turned = (d[i]! - over) * sine + 2 * cosine * b;
    shift = sine * turned;
    d[i + 1] = over + shift;
    g = cosine * turned - b;
    rotate(rows[i]!, rows[i + 1]!, cosine, sine);
  }
  d[low]! -= shift;
  e[low] = g;
  e[end] = 0;
}

function rotate(a: Float64Array, b: Float64Array, cosine: number, sine: number): void {
  for (let k = 0; k < a.length; k++) {
    const f = b[k]!;
    b[k] = sine * a[k]! + cosine * f;
    a[k] = cosine * a[k]! - sine * f;
  }
}
