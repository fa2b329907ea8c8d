/**
 * Adds the low-rank updates of LoRA to the weights beside them, in a graph for export; as
 * `pocketune.device.use.lora`. `W x + up(down(x))` is one layer of weight `W + up down`.
 */
import { floatBytes } from "./bytes";
import { attributes, type Graph, type NodeProto, type TensorProto } from "./proto";

const FLOAT32 = 1;

/**
 * Folds every update beside a float layer, in place. Those beside weights in 8 bits stay as they are.
 * The nodes of folded ones stay too, and nothing reads what they compute.
 */
export function foldLowRank(graph: Graph): void {
  const folding = new Folding(graph);
  const adds = graph.nodes.filter((node) => node.operator === "Add");
  const gone = new Set(adds.filter((node) => folding.tryFold(node)));
  graph.nodes = graph.nodes.filter((node) => !gone.has(node));
}

/** What reads and makes each value of a graph. */
class Folding {
  private readonly made = new Map<string, NodeProto>();
  private readonly constants = new Map<string, TensorProto>();
  private readonly reads = new Map<string, number>();

  constructor(graph: Graph) {
    for (const node of graph.nodes) {
      for (const name of node.outputs) this.made.set(name, node);
      for (const name of node.inputs) this.reads.set(name, (this.reads.get(name) ?? 0) + 1);
    }
    for (const tensor of graph.initializers) this.constants.set(tensor.name, tensor);
  }

  /** Makes the layer give `layer + up(down)`, if this is what a node adds. */
  tryFold(add: NodeProto): boolean {
    for (const [one, other] of [add.inputs, [...add.inputs].reverse()]) {
      const layer = this.layer(one!);
      const up = this.layer(other!);
      const down = up && this.layer(up.inputs[0]!);
      if (!layer || !up || !down || layer.inputs[0] !== down.inputs[0]) continue;
      const [weight, upper, lower] = [layer, up, down].map((node) => this.kernel(node.inputs[1]!));
      if (!weight || !upper || !lower) continue;
      const plain = up.inputs.length === 2 && down.inputs.length === 2;
      if (plain && this.reads.get(layer.inputs[1]!) === 1 && pointwise(weight, upper, lower)) {
        addProduct(weight, upper, lower);
        layer.outputs[0] = add.outputs[0]!;
        return true;
      }
    }
    return false;
  }

  /** The linear layer or convolution that makes a value which nothing else reads. */
  private layer(name: string): NodeProto | undefined {
    const node = this.made.get(name);
    if (!node || this.reads.get(name) !== 1) return undefined;
    if (node.operator === "Conv") return node;
    const options = attributes(node);
    const transposed = options.size === 1 && options.get("transB") === 1;
    return node.operator === "Gemm" && transposed ? node : undefined;
  }

  /** The constant behind a value, seen through a change of shape. */
  private kernel(name: string): TensorProto | undefined {
    const node = this.made.get(name);
    const own = node?.operator === "Reshape" ? node.inputs[0]! : name;
    const tensor = this.constants.get(own);
    return tensor?.type === FLOAT32 && tensor.raw?.length ? tensor : undefined;
  }
}

/** Whether weights (out, in), (out, rank) and (rank, in) fit, with sides of 1 behind them. */
function pointwise(weight: TensorProto, up: TensorProto, down: TensorProto): boolean {
  const shapes = [weight.dims, up.dims, down.dims];
  const flat = shapes.every(
    (shape) =>
      (shape.length === 2 || shape.length === 4) && shape.slice(2).every((size) => size === 1),
  );
  const [[out, inputs], [rows, rank], [middle, columns]] = shapes as [number[], number[], number[]];
  return flat && out === rows && inputs === columns && rank === middle;
}

function addProduct(weight: TensorProto, up: TensorProto, down: TensorProto): void {
  const [out, inputs] = weight.dims as [number, number];
  const rank = up.dims[1]!;
  const [sum, left, right] = [floats(weight), floats(up), floats(down)];
  for (let row = 0; row < out; row++) {
    for (let column = 0; column < inputs; column++) {
      let product = 0;
      for (let k = 0; k < rank; k++) product += left[row * rank + k]! * right[k * inputs + column]!;
      sum[row * inputs + column]! += product;
    }
  }
  weight.raw = floatBytes(sum);
}

/** A copy of the values, because bytes in a file need not begin at a multiple of 4. */
const floats = (tensor: TensorProto): Float32Array => new Float32Array(tensor.raw!.slice().buffer);
