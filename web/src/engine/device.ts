/** What computes the steps of a run: WebAssembly, or the GPU where that gives the same sooner. */
import type { Choice, Device, Trial } from "../contract";

/** Most of a loss or gradient, by its norm, in which two devices may differ. */
const TOLERANCE = 1e-4;
/** Gradients of a smaller part of all are as exact as that part. */
const LEAST = 1e-2;
/** The GPU has to be so many times as fast: it is another 4 MB to load, and times are uncertain. */
const WORTH = 1.25;

export interface Ways {
  /** Whether the browser has a GPU to compute with. */
  hasGpu(): Promise<boolean>;
  /** A few steps there; null where they fail. */
  tryOn(device: Device): Promise<Trial | null>;
}

/** Tries both, one after the other, where there is a GPU. */
export async function chooseDevice({ hasGpu, tryOn }: Ways): Promise<Choice> {
  if (!(await hasGpu())) return { device: "wasm", speedup: null };
  const [gpu, plain] = [await tryOn("webgpu"), await tryOn("wasm")];
  if (!gpu || !plain || !agree(gpu, plain)) return { device: "wasm", speedup: null };
  const speedup = plain.seconds / gpu.seconds;
  return { device: speedup >= WORTH ? "webgpu" : "wasm", speedup };
}

/**
 * Whether loss and each gradient are the same but for rounding. Some gradients are zero and have only
 * rounding, as that of a shift before a batch norm: they are compared with all of them.
 */
export function agree(found: Trial, reference: Trial): boolean {
  const { loss, gradients } = reference;
  const least = LEAST * norm([...gradients.values()].map((values) => norm(values)));
  if (!(Math.abs(found.loss - loss) <= TOLERANCE * Math.abs(loss))) return false;
  return [...gradients].every(([name, expected]) => {
    const values = found.gradients.get(name);
    if (values?.length !== expected.length) return false;
    const off = norm(expected.map((value, i) => value - values[i]!));
    return off <= TOLERANCE * Math.max(norm(expected), least);
  });
}

function norm(values: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < values.length; i++) sum += values[i]! ** 2;
  return Math.sqrt(sum);
}

/** The parts of WebGPU that are asked for; TypeScript's library for pages does not have them. */
interface Gpu {
  requestAdapter(): Promise<object | null>;
}

/** The runtime for the GPU waits for it by JavaScript Promise Integration. */
export async function browserHasGpu(): Promise<boolean> {
  const { gpu } = navigator as { gpu?: Gpu };
  if (!gpu || !("Suspending" in WebAssembly)) return false;
  return (await gpu.requestAdapter().catch(() => null)) !== null;
}
