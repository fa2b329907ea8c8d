/** The principal axes of rows; see device/head/basis.py. */
import { eigen } from "./eigen";
import { addSquare, type Matrix, zeros } from "./matrix";

/** Orthonormal axes, a row for each, and the sum of squares of the rows along each. */
export interface Basis {
  axes: Matrix;
  squares: Float64Array;
}

/** Axes along which there is nothing but rounding are left out. */
export function decompose(rows: Iterable<ArrayLike<number>>, size: number): Basis {
  const gram = zeros(size, size);
  for (const values of rows) addSquare(gram, values);
  const { values, vectors } = eigen(gram);
  const least = Math.max(0, (values[size - 1] ?? 0) * size * Number.EPSILON);
  const from = values.findIndex((value) => value > least);
  const start = from < 0 ? size : from;
  return {
    axes: { rows: size - start, columns: size, data: vectors.data.subarray(start * size) },
    squares: values.subarray(start),
  };
}
