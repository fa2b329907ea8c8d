/** Gradients and predictions of a kit; see device/engine/onnx.py. */
import { type Kit, type Label, type Manifest, type State, UserError } from "../contract";
import type { Random } from "./random";
import { bytes, type Feeds, floats, Graph, type Outputs } from "./session";
import { type Task, taskOf } from "./tasks";

/** What a graph starts from, of several photos: pixels, or features where a part is frozen. */
export type Start = Uint8Array | Float32Array;

export interface Gradients {
  loss: number;
  /** Photos of the batch that are predicted correctly; of attributes, the share of each photo counts. */
  correct: number;
  /** By the parameter's name, in its shape. */
  values: Map<string, Float32Array>;
}

const FEATURES_BYTES = 4 << 20;
const PREDICT_BYTES = 16 << 20;

/**
 * Either the step or the prediction is open, never both: two open graphs would take the memory of
 * both. Parameters and statistics are live: the optimizer updates them in place.
 */
export class Engine {
  readonly parameters: State;
  readonly statistics: State;
  readonly manifest: Manifest;
  readonly task: Task;
  private features: Graph | null = null;
  private open: { name: "step" | "predict"; graph: Graph } | null = null;

  /** The state is copied; its number of classes may differ from the kit's. */
  constructor(
    private readonly kit: Kit,
    state: State,
    classes: number,
  ) {
    this.manifest = kit.manifest;
    this.task = taskOf(kit.manifest.task.name, classes);
    const copies = copyState(state);
    const pick = (specs: readonly { name: string }[]): State =>
      new Map(specs.map(({ name }) => [name, copies.get(name)!]));
    this.parameters = pick(kit.manifest.parameters);
    this.statistics = pick(kit.manifest.statistics);
  }

  /** Parameters and statistics, live. */
  get state(): State {
    return new Map([...this.parameters, ...this.statistics]);
  }

  /** Copies of all parameters and statistics. */
  copy(): State {
    return copyState(this.state);
  }

  load(state: State): void {
    for (const [name, { data }] of this.state) data.set(state.get(name)!.data);
  }

  /** Values of one photo as the graphs start from them. */
  get startSize(): number {
    return this.startShape.reduce((a, b) => a * b, 1);
  }

  get startShape(): number[] {
    const { features, size } = this.manifest;
    return features ?? [size, size, 3];
  }

  /** The part of a step that does not depend on any trained value, of pixels (N, S, S, 3). */
  async prepare(pixels: Uint8Array): Promise<Start> {
    const { features, size, graphs } = this.manifest;
    if (!features) return pixels;
    this.features ??= await this.openFeatures();
    const each = size * size * 3;
    const count = pixels.length / each;
    const found = new Float32Array(count * this.startSize);
    const most = Math.max(1, Math.floor(FEATURES_BYTES / Math.max(1, graphs.features!.memory)));
    const step = Math.min(this.manifest.micro_batch, most);
    for (let start = 0; start < count; start += step) {
      const part = pixels.subarray(start * each, (start + step) * each);
      const images = bytes(part, [part.length / each, size, size, 3]);
      const outputs = await this.features.run({ images }, ["features"]);
      found.set(
        take(outputs, "features", (part.length / each) * this.startSize),
        start * this.startSize,
      );
    }
    return found;
  }

  /** Loss and gradients of a batch, in training mode; updates the statistics. */
  gradients(start: Start, labels: readonly Label[], random: Random): Promise<Gradients> {
    return this.gradientsWith(start, labels, () => this.drawMasks(random));
  }

  /** The same with the dropout masks of each micro-batch, by name. */
  async gradientsWith(
    start: Start,
    labels: readonly Label[],
    masks: () => ReadonlyMap<string, Float32Array>,
  ): Promise<Gradients> {
    const size = this.manifest.micro_batch;
    const share = size / labels.length;
    const total: Gradients = { loss: 0, correct: 0, values: new Map() };
    for (let from = 0; from < labels.length; from += size) {
      const part = start.subarray(from * this.startSize, (from + size) * this.startSize);
      const found = await this.runStep(part, labels.slice(from, from + size), masks());
      if (share === 1) return found;
      total.loss += share * found.loss;
      total.correct += found.correct;
      for (const [name, added] of found.values) {
        const sum = total.values.get(name) ?? new Float32Array(added.length);
        added.forEach((value, i) => (sum[i]! += share * value));
        total.values.set(name, sum);
      }
    }
    return total;
  }

  /** Loss and gradients of a micro-batch, by one run of the graph. */
  private async runStep(
    start: Start,
    labels: readonly Label[],
    masks: ReadonlyMap<string, Float32Array>,
  ): Promise<Gradients> {
    const graph = await this.graph("step");
    const feeds: Feeds = { ...this.startFeed(start), labels: this.task.feed(labels) };
    for (const { name, shape } of this.manifest.masks)
      feeds[name] = floats(masks.get(name)!, shape);
    const gradients = [...this.parameters.keys()].map((name) => `grad.${name}`);
    const statistics = [...this.statistics.keys()].map((name) => `new.${name}`);
    const outputs = await graph.run(feeds, ["loss", "correct", ...gradients, ...statistics]);
    for (const [name, { data }] of this.statistics) {
      data.set(take(outputs, `new.${name}`, data.length));
    }
    return {
      loss: Number(take(outputs, "loss", 1)[0]),
      correct: Number(outputs["correct"]?.data[0]),
      values: new Map(
        [...this.parameters].map(([name, { data }]) => [
          name,
          take(outputs, `grad.${name}`, data.length),
        ]),
      ),
    };
  }

  /** Logits (N, classes) of what photos start from, computed a few at a time. */
  logits(start: Start): Promise<Float32Array> {
    return this.evaluate(start, "logits", this.task.outputs);
  }

  /** Inputs (N, D) of the output layer. */
  embed(start: Start): Promise<Float32Array> {
    return this.evaluate(start, "embeddings", this.manifest.embeddings ?? 0);
  }

  /** Closes all graphs; they are opened again when they are used. */
  async release(): Promise<void> {
    await this.features?.close();
    this.features = null;
    await this.closeOpen();
  }

  private async evaluate(start: Start, output: string, size: number): Promise<Float32Array> {
    const graph = await this.graph("predict");
    const count = start.length / this.startSize;
    const found = new Float32Array(count * size);
    const { micro_batch, graphs } = this.manifest;
    const each = Math.max(1, graphs["predict"]!.memory) / micro_batch;
    const most = Math.min(micro_batch, Math.max(1, Math.floor(PREDICT_BYTES / each)));
    for (let from = 0; from < count; from += most) {
      const to = Math.min(count, from + most);
      const part = start.subarray(from * this.startSize, to * this.startSize);
      const outputs = await graph.run(this.startFeed(part), [output]);
      found.set(take(outputs, output, (to - from) * size), from * size);
    }
    return found;
  }

  private startFeed(start: Start): Feeds {
    const shape = [start.length / this.startSize, ...this.startShape];
    return start instanceof Float32Array
      ? { features: floats(start, shape) }
      : { images: bytes(start, shape) };
  }

  private drawMasks(random: Random): Map<string, Float32Array> {
    return new Map(
      this.manifest.masks.map(({ name, shape, keep }) => {
        const mask = new Float32Array(shape.reduce((a, b) => a * b, 1));
        for (let i = 0; i < mask.length; i++) mask[i] = random.uniform() < keep ? 1 / keep : 0;
        return [name, mask];
      }),
    );
  }

  /** A frozen part that was calibrated computes in integers, as it does in Python. */
  private openFeatures(): Promise<Graph> {
    const integers = this.manifest.quantization?.["activations"] === 8;
    const how = integers ? "integers" : "optimized";
    return Graph.open("features.onnx", this.kit.graphs.features!, new Map(), how);
  }

  /** The graph of a training step or that of a prediction; the other one is closed. */
  private async graph(name: "step" | "predict"): Promise<Graph> {
    if (this.open?.name === name) return this.open.graph;
    await this.closeOpen();
    const graph = await Graph.open(
      `${name}.onnx`,
      this.kit.graphs[name],
      this.state,
      name === "step" ? "as written" : "optimized",
    );
    this.open = { name, graph };
    return graph;
  }

  private async closeOpen(): Promise<void> {
    await this.open?.graph.close();
    this.open = null;
  }
}

export function copyState(state: State): State {
  return new Map(
    [...state].map(([name, { shape, data }]) => [name, { shape: [...shape], data: data.slice() }]),
  );
}

/** An output of so many values; no graph has to declare its shape. */
function take(outputs: Outputs, name: string, size: number): Float32Array {
  const data = outputs[name]?.data;
  if (!(data instanceof Float32Array) || data.length !== size) {
    throw new UserError(
      `The kit gives ${name} in another shape than its manifest; build it again.`,
    );
  }
  return data;
}
