/** The directions in which embeddings differ most; see device/head/projection.py. */
import { Random } from "../random";
import { decompose } from "./basis";
import type { Layer } from "./form";
import { add, columnsOf, dot, type Matrix, onto, row, times, zeros } from "./matrix";
import { type Embeddings, embedding, less, type Sums } from "./sums";

/** Directions that are kept. With more, a classifier gains nothing. */
export const RANK = 384;

export class Projection {
  /** Orthonormal directions, a row for each. */
  private readonly axes: Matrix;

  /**
   * The subspace of the largest variance is spanned by random combinations of the embeddings (Halko
   * et al., 2011, algorithm 4.1), which are all that there is of at most 384 photos.
   */
  constructor(
    of: Embeddings,
    private readonly sums: Sums,
  ) {
    const rank = Math.min(RANK, sums.images);
    const random = new Random(0, 0);
    const found = zeros(rank, of.size);
    of.labels.forEach((label, i) => {
      const off = less(embedding(of, i), sums.mean);
      const root = Math.sqrt(sums.weights[of.task.group(label)]!);
      for (let r = 0; r < rank; r++) add(row(found, r), off, root * random.normal());
    });
    this.axes = orthonormal(found);
  }

  /** The coordinates of embeddings. */
  apply(of: Embeddings): Embeddings {
    const size = this.axes.rows;
    const rows = new Float32Array(of.labels.length * size);
    for (let i = 0; i < of.labels.length; i++) {
      rows.set(onto(this.axes, less(embedding(of, i), this.sums.mean)), i * size);
    }
    return { ...of, size, rows };
  }

  /** The layer for embeddings that does as a layer for coordinates. */
  layer({ weight, bias }: Layer): Layer {
    const full = zeros(weight.rows, this.axes.columns);
    for (let c = 0; c < full.rows; c++) row(full, c).set(times(row(weight, c), this.axes));
    return { weight: full, bias: bias.map((b, c) => b - dot(row(full, c), this.sums.mean)) };
  }
}

/** An orthonormal basis of rows (Stathopoulos and Wu, 2002). */
function orthonormal(rows: Matrix): Matrix {
  const basis = decompose(columnsOf(rows), rows.rows);
  const axes = zeros(basis.axes.rows, rows.columns);
  for (let m = 0; m < axes.rows; m++) {
    const scale = 1 / Math.sqrt(basis.squares[m]!);
    row(axes, m).set(times(row(basis.axes, m), rows).map((value) => value * scale));
  }
  return axes;
}
