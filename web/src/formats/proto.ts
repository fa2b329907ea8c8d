/** The parts of an ONNX graph that an export changes; all other fields pass through as they are. */
import {
  bytesField,
  numberField,
  readFields,
  readVarints,
  textField,
  writeFields,
  type Field,
} from "./wire";

export interface NodeProto {
  inputs: string[];
  outputs: string[];
  name: string | null;
  operator: string;
  /** Attributes, domain and notes, as they are in the file. */
  rest: Field[];
}

export interface TensorProto {
  name: string;
  type: number;
  dims: number[];
  /** Null if the values are in another field, which is among the rest. */
  raw: Uint8Array | null;
  rest: Field[];
}

export interface Graph {
  nodes: NodeProto[];
  initializers: TensorProto[];
  /** Names of the inputs. */
  inputs: string[];
}

const INPUT = 1;
const OUTPUT = 2;
const NAME = 3;
const OPERATOR = 4;
export const ATTRIBUTE = 5;
const RAW_DATA = 9;

const text = (value: Field["value"]): string => new TextDecoder().decode(value as Uint8Array);

export function decodeGraph(bytes: Uint8Array): Graph {
  const graph: Graph = { nodes: [], initializers: [], inputs: [] };
  for (const { number, value } of readFields(bytes)) {
    if (number === 1) graph.nodes.push(decodeNode(value as Uint8Array));
    else if (number === 5) graph.initializers.push(decodeTensor(value as Uint8Array));
    else if (number === 11) {
      for (const field of readFields(value as Uint8Array)) {
        if (field.number === 1) graph.inputs.push(text(field.value));
      }
    }
  }
  return graph;
}

function decodeNode(bytes: Uint8Array): NodeProto {
  const node: NodeProto = { inputs: [], outputs: [], name: null, operator: "", rest: [] };
  for (const field of readFields(bytes)) {
    if (field.number === INPUT) node.inputs.push(text(field.value));
    else if (field.number === OUTPUT) node.outputs.push(text(field.value));
    else if (field.number === NAME) node.name = text(field.value);
    else if (field.number === OPERATOR) node.operator = text(field.value);
    else node.rest.push(field);
  }
  return node;
}

export function encodeNode(node: NodeProto): Uint8Array {
  return writeFields([
    ...node.inputs.map((name) => textField(INPUT, name)),
    ...node.outputs.map((name) => textField(OUTPUT, name)),
    ...(node.name === null ? [] : [textField(NAME, node.name)]),
    textField(OPERATOR, node.operator),
    ...node.rest,
  ]);
}

function decodeTensor(bytes: Uint8Array): TensorProto {
  const tensor: TensorProto = { name: "", type: 0, dims: [], raw: null, rest: [] };
  for (const field of readFields(bytes)) {
    const { number, value } = field;
    if (number === 1) {
      if (typeof value === "bigint") tensor.dims.push(Number(value));
      else tensor.dims.push(...Array.from(readVarints(value), Number));
    } else if (number === 2) tensor.type = Number(value);
    else if (number === 8) tensor.name = text(value);
    else if (number === RAW_DATA) tensor.raw = value as Uint8Array;
    else tensor.rest.push(field);
  }
  return tensor;
}

export function encodeTensor(tensor: TensorProto): Uint8Array {
  return writeFields([
    ...tensor.dims.map((size) => numberField(1, size)),
    numberField(2, tensor.type),
    textField(8, tensor.name),
    ...(tensor.raw === null ? [] : [bytesField(RAW_DATA, tensor.raw)]),
    ...tensor.rest,
  ]);
}

/** Whole-number attributes of a node by name; 0 for attributes of another kind. */
export function attributes(node: NodeProto): Map<string, number> {
  const found = new Map<string, number>();
  for (const { number, value } of node.rest) {
    if (number !== ATTRIBUTE) continue;
    let [name, whole] = ["", 0];
    for (const field of readFields(value as Uint8Array)) {
      if (field.number === 1) name = text(field.value);
      else if (field.number === 3) whole = Number(field.value);
    }
    found.set(name, whole);
  }
  return found;
}
