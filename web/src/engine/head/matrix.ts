/** Matrices of float64, row by row, with the few products that the closed forms need. */

export interface Matrix {
  rows: number;
  columns: number;
  data: Float64Array;
}

export function zeros(rows: number, columns: number): Matrix {
  return { rows, columns, data: new Float64Array(rows * columns) };
}

export function row(matrix: Matrix, index: number): Float64Array {
  return matrix.data.subarray(index * matrix.columns, (index + 1) * matrix.columns);
}

export function* rowsOf(matrix: Matrix): Generator<Float64Array> {
  for (let i = 0; i < matrix.rows; i++) yield row(matrix, i);
}

/** The columns one after the other, each in the place of the one before. */
export function* columnsOf(matrix: Matrix): Generator<Float64Array> {
  const column = new Float64Array(matrix.rows);
  for (let j = 0; j < matrix.columns; j++) {
    for (let i = 0; i < matrix.rows; i++) column[i] = matrix.data[i * matrix.columns + j]!;
    yield column;
  }
}

export function dot(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let total = 0;
  for (let i = 0; i < a.length; i++) total += a[i]! * b[i]!;
  return total;
}

/** The product (columns,) of a row vector with a matrix. */
export function times(vector: ArrayLike<number>, matrix: Matrix): Float64Array {
  const result = new Float64Array(matrix.columns);
  for (let i = 0; i < matrix.rows; i++) add(result, row(matrix, i), vector[i]!);
  return result;
}

/** The product (rows,) of a matrix with a column vector. */
export function onto(matrix: Matrix, vector: ArrayLike<number>): Float64Array {
  return Float64Array.from({ length: matrix.rows }, (_, i) => dot(row(matrix, i), vector));
}

/** Adds `factor` times a vector to another, in place. */
export function add(into: Float64Array, vector: ArrayLike<number>, factor = 1): void {
  if (!factor) return;
  for (let i = 0; i < into.length; i++) into[i]! += factor * vector[i]!;
}

/** Adds the outer product of a vector with itself; the upper triangle alone. */
export function addSquare(into: Matrix, vector: ArrayLike<number>): void {
  const n = into.columns;
  for (let i = 0; i < n; i++) {
    const value = vector[i]!;
    if (!value) continue;
    const start = i * n;
    for (let j = i; j < n; j++) into.data[start + j]! += value * vector[j]!;
  }
}
