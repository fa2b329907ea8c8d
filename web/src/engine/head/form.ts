import type { Label } from "../../contract";
import type { Matrix } from "./matrix";

/** A closed form of the output layer; see device/head/trial.py. */
export interface Form {
  name: "class means" | "LDA" | "ridge";
  /** Its regularizations. */
  strengths: readonly number[];
  /** For each strength, the outputs for a photo by the fit without it. */
  leftOut(values: Float32Array, label: Label): Float64Array[];
  /** Weight (outputs, size) and bias for a strength. */
  layer(index: number): Layer;
}

export interface Layer {
  weight: Matrix;
  bias: Float64Array;
}

/** Penalties relative to the mean variance of a dimension. */
export const STRENGTHS = [1e-3, 1e-2, 1e-1, 1, 10, 100] as const;
