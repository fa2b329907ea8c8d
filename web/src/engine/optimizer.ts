/** SGD, Adam and AdamW in typed arrays, in place; see device/train/optimizer.py. */
import type { OptimizerName, OptimizerState, State } from "../contract";

const BETAS = [0.9, 0.999] as const;
const EPS = 1e-8;
const SLOTS = {
  sgd: ["momentum_buffer"],
  adam: ["gradient_sum", "square_sum"],
  adamw: ["gradient_sum", "square_sum"],
} as const;

export interface OptimizerOptions {
  /** Of sgd; with 0 there is no buffer. */
  momentum?: number;
  /** Not applied to tensors of one dimension: biases and norms. */
  weightDecay?: number;
  /** Factors on the learning rate of some parameters, by name. */
  rates?: ReadonlyMap<string, number>;
}

/** Values are rounded to float32 where numpy rounds them: `f` is that rounding. */
const f = Math.fround;

export class Optimizer {
  steps = 0;
  private readonly slots = new Map<string, Float32Array[]>();
  private readonly names: readonly string[];
  private readonly momentum: number;
  private readonly decay: number;

  constructor(
    readonly kind: OptimizerName,
    private readonly parameters: State,
    private readonly options: OptimizerOptions = {},
  ) {
    this.momentum = options.momentum ?? 0.9;
    this.decay = options.weightDecay ?? 0;
    this.names = kind === "sgd" && !this.momentum ? [] : SLOTS[kind];
    for (const [name, { data }] of parameters) {
      this.slots.set(
        name,
        this.names.map(() => new Float32Array(data.length)),
      );
    }
  }

  /** Updates every parameter in place; the gradients may be changed. */
  step(gradients: ReadonlyMap<string, Float32Array>, lr: number): void {
    this.steps += 1;
    for (const [name, { data, shape }] of this.parameters) {
      const rate = lr * (this.options.rates?.get(name) ?? 1);
      const gradient = gradients.get(name)!;
      if (this.decay && shape.length > 1) this.applyDecay(data, gradient, rate);
      if (this.kind === "sgd") this.sgd(data, gradient, this.slots.get(name)!, rate);
      else this.adam(data, gradient, this.slots.get(name)!, rate);
    }
  }

  state(): OptimizerState {
    return { steps: this.steps, slots: new Map(this.buffers()) };
  }

  load(state: OptimizerState): void {
    for (const [name, buffer] of this.buffers()) buffer.set(state.slots.get(name)!);
    this.steps = state.steps;
  }

  private *buffers(): Iterable<[string, Float32Array]> {
    for (const [name, buffers] of this.slots) {
      for (const [i, buffer] of buffers.entries()) yield [`${this.names[i]}.${name}`, buffer];
    }
  }

  private applyDecay(values: Float32Array, gradient: Float32Array, lr: number): void {
    const decay = f(this.decay);
    const kept = f(1 - lr * this.decay);
    if (this.kind === "adamw") for (let i = 0; i < values.length; i++) values[i]! *= kept;
    else for (let i = 0; i < values.length; i++) gradient[i]! += f(values[i]! * decay);
  }

  private sgd(
    values: Float32Array,
    gradient: Float32Array,
    slots: Float32Array[],
    lr: number,
  ): void {
    const rate = f(lr);
    const momentum = f(this.momentum);
    const [buffer] = slots;
    if (!buffer) {
      for (let i = 0; i < values.length; i++) values[i]! -= f(gradient[i]! * rate);
      return;
    }
    for (let i = 0; i < values.length; i++) {
      const moved = f(f(buffer[i]! * momentum) + gradient[i]!);
      buffer[i] = moved;
      values[i]! -= f(moved * rate);
    }
  }

  /** The state holds decayed sums, so that bias corrections apply once a step. */
  private adam(
    values: Float32Array,
    gradient: Float32Array,
    slots: Float32Array[],
    lr: number,
  ): void {
    const [mean, square] = BETAS.map((beta) => (1 - beta) / (1 - beta ** this.steps));
    const rate = f((lr * mean!) / Math.sqrt(square!));
    const eps = f(EPS / Math.sqrt(square!));
    const [first, second] = [f(BETAS[0]), f(BETAS[1])];
    const [sums, squares] = slots as [Float32Array, Float32Array];
    for (let i = 0; i < values.length; i++) {
      const g = gradient[i]!;
      const sum = f(f(sums[i]! * first) + g);
      const squared = f(f(squares[i]! * second) + f(g * g));
      sums[i] = sum;
      squares[i] = squared;
      values[i]! -= f(f(sum / f(f(Math.sqrt(squared)) + eps)) * rate);
    }
  }
}

/** L2 norm of all gradients together; not finite if any of them is not. */
export function gradientNorm(gradients: Iterable<Float32Array>): number {
  let total = 0;
  for (const gradient of gradients) {
    for (let i = 0; i < gradient.length; i++) total += gradient[i]! * gradient[i]!;
  }
  return Math.sqrt(total);
}
