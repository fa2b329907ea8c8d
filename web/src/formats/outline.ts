/**
 * The structure of an ONNX file, read strictly and without its weights, as `pocketune.kit.outline`
 * does it: a graph may come from a stranger, so this is read before the runtime sees the file.
 */
import rules from "./rules.json";
import { readFields, readVarints } from "./wire";

// Fields of onnx.proto3 (github.com/onnx/onnx) by number.
const MODEL = { ir_version: 1, graph: 7, opset_import: 8 };
const MODEL_TEXTS = [2, 3, 4, 5, 6, 14]; // producer, domain, version, doc_string, metadata_props
const OPSET = { domain: 1, version: 2 };
const GRAPH = { node: 1, name: 2, initializer: 5, input: 11, output: 12 };
const GRAPH_TEXTS = [10, 13]; // doc_string, value_info
const NODE = { input: 1, output: 2, name: 3, op_type: 4, attribute: 5, domain: 7 };
const NODE_TEXTS = [6, 9]; // doc_string, metadata_props
const ATTRIBUTE = { name: 1, t: 5 };
const ATTRIBUTE_OTHERS = [2, 3, 4, 7, 8, 9, 20, 13]; // numbers, texts, lists, type, doc_string
const TENSOR = {
  dims: 1,
  data_type: 2,
  floats: 4,
  int32s: 5,
  int64s: 7,
  raw_data: 9,
  data_location: 14,
};
const TENSOR_TEXTS = [8, 12]; // name, doc_string
const VALUE = { name: 1, type: 2 };
const VALUE_TEXTS = [3];
const TYPE = { tensor_type: 1 };
const TENSOR_TYPE = { elem_type: 1, shape: 2 };
const SHAPE = { dim: 1 };
const DIMENSION = { dim_value: 1, dim_param: 2 };

const ITEM_BYTES: Readonly<Record<string, number>> = rules.itemBytes;

/** An input or output of a graph; a size of null is a name, a shape of null is not declared. */
export interface Value {
  name: string;
  type: number;
  shape: (number | null)[] | null;
}

export interface Outline {
  irVersion: number;
  /** Version of the operators by domain. */
  opsets: Map<string, number>;
  nodes: { operator: string; domain: string }[];
  /** Bytes of each constant. */
  constants: number[];
  inputs: Value[];
  outputs: Value[];
}

/**
 * The structure of an ONNX file. Throws Error if it is damaged, or has a part that no graph of a kit
 * has: subgraphs, functions, sparse or external tensors, constants with fewer or more values than
 * their shape.
 */
export function readOutline(data: Uint8Array): Outline {
  const model = new Message(data, MODEL, MODEL_TEXTS);
  const outline: Outline = {
    irVersion: model.number("ir_version"),
    opsets: new Map(),
    nodes: [],
    constants: [],
    inputs: [],
    outputs: [],
  };
  for (const part of model.parts("opset_import", OPSET)) {
    outline.opsets.set(part.text("domain"), part.number("version"));
  }
  for (const graph of model.parts("graph", GRAPH, GRAPH_TEXTS)) readGraph(graph, outline);
  return outline;
}

function readGraph(graph: Message, outline: Outline): void {
  for (const node of graph.parts("node", NODE, NODE_TEXTS)) {
    outline.nodes.push({ operator: node.text("op_type"), domain: node.text("domain") });
    for (const attribute of node.parts("attribute", ATTRIBUTE, ATTRIBUTE_OTHERS)) {
      for (const tensor of attribute.parts("t", TENSOR, TENSOR_TEXTS)) {
        outline.constants.push(tensorBytes(tensor));
      }
    }
  }
  for (const tensor of graph.parts("initializer", TENSOR, TENSOR_TEXTS)) {
    outline.constants.push(tensorBytes(tensor));
  }
  for (const value of graph.parts("input", VALUE, VALUE_TEXTS)) outline.inputs.push(read(value));
  for (const value of graph.parts("output", VALUE, VALUE_TEXTS)) outline.outputs.push(read(value));
}

function tensorBytes(tensor: Message): number {
  const kind = tensor.number("data_type");
  const dims = tensor.numbers("dims");
  const bytes = ITEM_BYTES[String(kind)];
  if (bytes === undefined) throw new Error(`a constant has elements of type ${kind}`);
  if (tensor.number("data_location")) throw new Error("a constant has its values in another file");
  const count = dims.reduce((all, size) => all * size, 1);
  const held =
    tensor.size("raw_data") / bytes +
    tensor.count("floats") +
    tensor.count("int32s") +
    tensor.count("int64s");
  if (dims.some((size) => size < 0) || held !== count) {
    throw new Error(`a constant of shape (${dims.join(", ")}) has ${held} values`);
  }
  return count * bytes;
}

function read(value: Message): Value {
  const found: Value = { name: value.text("name"), type: 0, shape: null };
  for (const type of value.parts("type", TYPE)) {
    for (const tensor of type.parts("tensor_type", TENSOR_TYPE)) {
      found.type = tensor.number("elem_type");
      for (const shape of tensor.parts("shape", SHAPE)) {
        found.shape = [...shape.parts("dim", DIMENSION)].map((dim) =>
          dim.has("dim_value") ? dim.number("dim_value") : null,
        );
      }
    }
  }
  return found;
}

type Known = Readonly<Record<string, number>>;

/** The fields of a message by name; any other than these and the ones that do not matter is refused. */
class Message {
  private readonly fields = new Map<number, (bigint | Uint8Array)[]>();

  constructor(
    data: Uint8Array,
    private readonly known: Known,
    others: readonly number[] = [],
  ) {
    const numbers = Object.values(known);
    for (const { number, value } of readFields(data)) {
      if (numbers.includes(number)) {
        const found = this.fields.get(number);
        if (found) found.push(value);
        else this.fields.set(number, [value]);
      } else if (!others.includes(number)) {
        throw new Error(`it has the unexpected field ${number}`);
      }
    }
  }

  has(name: string): boolean {
    return this.fields.has(this.known[name]!);
  }

  *parts(name: string, known: Known, others: readonly number[] = []): Generator<Message> {
    for (const value of this.values(name)) yield new Message(message(value), known, others);
  }

  /** A whole number; 0 if it is missing. */
  number(name: string): number {
    const value = this.one(name);
    if (value === undefined) return 0;
    if (typeof value !== "bigint") throw new Error(`its ${name} is not a number`);
    return Number(value);
  }

  /** A list of whole numbers, packed or not. */
  numbers(name: string): number[] {
    return this.values(name).flatMap((value) =>
      typeof value === "bigint"
        ? [Number(value)]
        : Array.from(readVarints(value), (each) => Number(BigInt.asIntN(64, each))),
    );
  }

  /** How many numbers a list has, packed or not; floats have 4 bytes each. */
  count(name: string): number {
    let found = 0;
    for (const value of this.values(name)) {
      if (typeof value === "bigint") found += 1;
      else if (name === "floats") found += Math.floor(value.length / 4);
      else found += Array.from(readVarints(value)).length;
    }
    return found;
  }

  /** A text; empty if it is missing. */
  text(name: string): string {
    const value = this.one(name);
    return value === undefined ? "" : UTF8.decode(message(value));
  }

  /** The number of bytes of a field; 0 if it is missing. */
  size(name: string): number {
    const value = this.one(name);
    return value === undefined ? 0 : message(value).length;
  }

  private values(name: string): (bigint | Uint8Array)[] {
    return this.fields.get(this.known[name]!) ?? [];
  }

  private one(name: string): bigint | Uint8Array | undefined {
    const values = this.values(name);
    // Readers may differ in which one counts.
    if (values.length > 1) throw new Error(`it has more than one ${name}`);
    return values[0];
  }
}

const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function message(value: bigint | Uint8Array): Uint8Array {
  if (typeof value === "bigint") throw new Error("a number is where a message should be");
  return value;
}
