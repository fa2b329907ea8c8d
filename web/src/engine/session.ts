/** The graphs of a kit in onnxruntime-web. Only this module and worker.ts know the runtime. */
import * as ort from "onnxruntime-web/wasm";
import { type Device, type State, UserError } from "../contract";

export type Feeds = Record<string, ort.Tensor>;
export type Outputs = ort.InferenceSession.ReturnType;

const memories: WebAssembly.Memory[] = [];
let steps: Device = "wasm";

/** The runtime, its version, and the GPU if it computes the steps. */
export function runtimeName(): string {
  return `onnxruntime-web ${ort.env.versions.web}` + (steps === "webgpu" ? " (WebGPU)" : "");
}

/** Bytes of the runtime's heap. It grows as far as it has to, and shrinks only with its worker. */
export function heapBytes(): number {
  return memories.reduce((most, memory) => Math.max(most, memory.buffer.byteLength), 0);
}

/**
 * Prepares the runtime, before the first graph is opened.
 *
 * Args: the runtime's code; the address of its loader, or none where it is bundled; threads;
 * what computes the steps.
 */
export function setUpRuntime(
  wasm: Uint8Array,
  loader: string | null,
  threads: number,
  device: Device = "wasm",
) {
  steps = device;
  const { wasm: env } = ort.env;
  env.wasmBinary = wasm;
  if (loader) env.wasmPaths = { mjs: loader };
  env.numThreads = threads;
  ort.env.logLevel = "error";
  watchMemory();
}

/** The runtime makes its memory itself and does not tell its size. */
function watchMemory(): void {
  if (memories.length) return;
  const Plain = WebAssembly.Memory;
  WebAssembly.Memory = class extends Plain {
    constructor(descriptor: WebAssembly.MemoryDescriptor) {
      super(descriptor);
      memories.push(this);
    }
  };
}

/**
 * How a graph is executed: its nodes unchanged, in the order that the compiler has chosen, on the
 * device of the steps; optimized;
 * or optimized with integers between quantized tensors, as a calibrated frozen part needs it to give
 * the features of Python. Otherwise weights stored in 8 bits become float32 when a graph is opened.
 */
export type Execution = "as written" | "optimized" | "integers";

/** An open graph. Inputs that are bound are read at each run, with the values that they then have. */
export class Graph {
  private constructor(
    private readonly name: string,
    private readonly session: ort.InferenceSession,
    private readonly bound: Feeds,
  ) {}

  /** Args: the name for messages; the graph's bytes; tensors by name, which need not be inputs. */
  static async open(name: string, bytes: Uint8Array, bound: State, how: Execution): Promise<Graph> {
    const session = await attempt(`${name} cannot be opened`, () =>
      ort.InferenceSession.create(bytes, {
        executionProviders: [how === "as written" ? steps : "wasm"],
        graphOptimizationLevel: how === "as written" ? "disabled" : "all",
        enableMemPattern: false,
        enableCpuMemArena: false,
        ...(how !== "integers" && { extra: { session: { disable_quant_qdq: "1" } } }),
      }),
    );
    delete ort.env.wasm.wasmBinary; // 14 MB, of which the runtime has made its own
    const feeds: Feeds = {};
    for (const input of session.inputNames) {
      const tensor = bound.get(input);
      if (tensor) feeds[input] = new ort.Tensor("float32", tensor.data, tensor.shape);
    }
    return new Graph(name, session, feeds);
  }

  /** Whether the graph has this input; a step may not need all that a kit has. */
  takes(input: string): boolean {
    return this.session.inputNames.includes(input);
  }

  run(feeds: Feeds, outputs: readonly string[]): Promise<Outputs> {
    const given = Object.entries(feeds).filter(([name]) => this.takes(name));
    return attempt(`${this.name} cannot be computed`, () =>
      this.session.run({ ...this.bound, ...Object.fromEntries(given) }, outputs),
    );
  }

  close(): Promise<void> {
    return this.session.release();
  }
}

export const floats = (data: Float32Array, shape: readonly number[]) =>
  new ort.Tensor("float32", data, shape);
export const bytes = (data: Uint8Array, shape: readonly number[]) =>
  new ort.Tensor("uint8", data, shape);
export const whole = (values: readonly number[]) =>
  new ort.Tensor("int64", BigInt64Array.from(values, BigInt), [values.length]);

async function attempt<T>(what: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const reason = String(error instanceof Error ? error.message : error).split("\n")[0];
    throw new UserError(`${what}: the kit is damaged, or memory ran out (${reason}).`);
  }
}
