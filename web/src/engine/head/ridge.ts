/** Ridge regression to the targets of a task, and its leave-one-out; see device/head/ridge.py. */
import type { Label } from "../../contract";
import { type Basis, decompose } from "./basis";
import { type Form, type Layer, STRENGTHS } from "./form";
import { add, dot, type Matrix, onto, row, times, zeros } from "./matrix";
import { type Embeddings, embedding, less, type Sums } from "./sums";

/** Photos are weighted such that groups weigh alike; the bias has no penalty. */
export class Ridge implements Form {
  readonly name = "ridge";
  readonly strengths = STRENGTHS;
  private readonly basis: Basis;
  /** Of each output's target with the embeddings along the axes. */
  private readonly moments: Matrix;
  private readonly unit: number;

  constructor(
    of: Embeddings,
    private readonly sums: Sums,
  ) {
    this.basis = decompose(this.weighted(of), of.size);
    const { task } = of;
    this.moments = zeros(task.outputs, this.basis.axes.rows);
    for (let i = 0; i < of.labels.length; i++) {
      const label = of.labels[i]!;
      const turned = onto(this.basis.axes, less(embedding(of, i), sums.mean));
      const weight = sums.weights[task.group(label)]!;
      for (let k = 0; k < task.outputs; k++) {
        add(row(this.moments, k), turned, weight * (task.target(label, k) - sums.targets[k]!));
      }
    }
    this.unit = this.basis.squares.reduce((a, b) => a + b, 0) / Math.max(of.size, 1) || 1;
  }

  leftOut(values: Float32Array, label: Label): Float64Array[] {
    const { task, targets, weights, mean, images } = this.sums;
    const weight = weights[task.group(label)]!;
    const turned = onto(this.basis.axes, less(values, mean));
    return this.strengths.map((strength) => {
      const shrunk = turned.map((v, j) => v / (this.basis.squares[j]! + strength * this.unit));
      const fitted = onto(this.moments, shrunk);
      const spread = 1 / images + dot(turned, shrunk);
      const leverage = Math.min(weight * spread, 1 - 1e-9);
      return fitted.map((value, k) => {
        const wanted = task.target(label, k) - targets[k]!;
        return (value - leverage * wanted) / (1 - leverage) + targets[k]!;
      });
    });
  }

  layer(index: number): Layer {
    const weight = zeros(this.moments.rows, this.basis.axes.columns);
    const penalty = this.strengths[index]! * this.unit;
    for (let c = 0; c < weight.rows; c++) {
      const shrunk = row(this.moments, c).map((v, j) => v / (this.basis.squares[j]! + penalty));
      row(weight, c).set(times(shrunk, this.basis.axes));
    }
    const { mean, targets } = this.sums;
    return { weight, bias: onto(weight, mean).map((value, c) => targets[c]! - value) };
  }

  private *weighted(of: Embeddings): Iterable<Float64Array> {
    for (let i = 0; i < of.labels.length; i++) {
      const root = Math.sqrt(this.sums.weights[of.task.group(of.labels[i]!)]!);
      yield less(embedding(of, i), this.sums.mean).map((value) => root * value);
    }
  }
}
