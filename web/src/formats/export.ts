/**
 * model.onnx: the two graphs of a prediction as one, with the trained values as constants; as
 * `pocketune.device.use.onnx_merge`. Protobuf messages are cut and joined without a library, so that
 * every field that is not changed stays as it is.
 */
import { UserError, type Kit, type State } from "../contract";
import { floatBytes } from "./bytes";
import { MANIFEST } from "./kit";
import { byCharacters, dumpJson, parseJson, type Json } from "./json";
import { foldLowRank } from "./low_rank";
import { shapesFor } from "./manifest";
import { decodeGraph, encodeNode, encodeTensor, type Graph, type TensorProto } from "./proto";
import type { Trained } from "./run";
import { checkedState } from "./tensors";
import { dequantizeAsProducts } from "./dequantize";
import {
  bytesField,
  messageField,
  numberField,
  readFields,
  textField,
  writeFields,
  type Field,
} from "./wire";

const FLOAT32 = 1;
const UINT8 = 2;

/**
 * One ONNX model from `images` (N, size, size, 3) uint8 to `logits` (N, classes) float32; the
 * metadata holds the task, and the classes as a JSON list.
 */
export function writeModel(kit: Kit, trained: Trained): Uint8Array<ArrayBuffer> {
  const { manifest, graphs } = kit;
  const { classes } = trained;
  const values = checkedState(trained.parameters, shapesFor(manifest, classes.length), "the run");
  try {
    const second = readModelFile(graphs.predict);
    const parts = graphs.features ? [readModelFile(graphs.features), second] : [second];
    if (graphs.features) renameApart(parts[0]!.graph, second.graph);
    const raw = parseJson(new TextDecoder().decode(kit.files.get(MANIFEST))) as Map<string, Json>;
    const network = new Map(raw.get("network") as Map<string, Json>);
    const properties: [string, string][] = [
      ["classes", dumpJson(classes, { unicode: true })],
      ["task", manifest.task.name],
      ["network", dumpJson(network.set("classes", classes.length))],
      ["pocketune", manifest.version],
    ];
    const graph = mergedGraph(parts, values);
    return writeFields([
      numberField(1, Math.max(...parts.map((part) => part.irVersion))),
      textField(2, "pocketune"),
      messageField(7, graphFields(graph, manifest.size, classes.length)),
      ...opsetFields(parts),
      ...properties.map(([key, value]) =>
        messageField(14, [textField(1, key), textField(2, value)]),
      ),
    ]) as Uint8Array<ArrayBuffer>;
  } catch (error) {
    throw new UserError(`the kit cannot be exported: ${(error as Error).message}`);
  }
}

interface ModelFile {
  irVersion: number;
  opsets: [domain: string, version: number][];
  graph: Graph;
}

const decodeText = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);

function readModelFile(bytes: Uint8Array): ModelFile {
  const found: ModelFile = {
    irVersion: 0,
    opsets: [],
    graph: { nodes: [], initializers: [], inputs: [] },
  };
  for (const { number, value } of readFields(bytes)) {
    if (number === 1) found.irVersion = Number(value);
    else if (number === 7) found.graph = decodeGraph(value as Uint8Array);
    else if (number === 8) {
      let [domain, version] = ["", 0];
      for (const field of readFields(value as Uint8Array)) {
        if (field.number === 1) domain = decodeText(field.value as Uint8Array);
        else if (field.number === 2) version = Number(field.value);
      }
      found.opsets.push([domain, version]);
    }
  }
  return found;
}

function mergedGraph(parts: ModelFile[], values: State): Graph {
  const second = parts.at(-1)!.graph;
  const inputs = new Set(second.inputs);
  for (const name of inputs) {
    if (!values.has(name) && name !== "images" && name !== "features") {
      throw new Error(`there is no value for the input ${name}`);
    }
  }
  const constants = [...values.keys()].filter((name) => inputs.has(name)).sort(byCharacters);
  const graph: Graph = {
    nodes: parts.flatMap((part) => part.graph.nodes),
    initializers: parts.flatMap((part) => part.graph.initializers),
    inputs: [],
  };
  for (const name of constants) {
    const { shape, data } = values.get(name)!;
    graph.initializers.push({ name, type: FLOAT32, dims: shape, raw: floatBytes(data), rest: [] });
  }
  dequantizeAsProducts(graph);
  sweep(graph); // embeddings are no output here
  foldLowRank(graph);
  sweep(graph);
  return graph;
}

/**
 * Renames the inner values of the first graph, so that no name occurs in the second. The values that
 * the two share, `images` and `features`, keep their names.
 */
function renameApart(first: Graph, second: Graph): void {
  const inner = defined(first);
  inner.delete("features");
  const taken = new Set([...defined(second), ...second.inputs]);
  let prefix = "features/";
  while ([...inner].some((name) => taken.has(prefix + name))) prefix += "_/";
  const renamed = (name: string) => (inner.has(name) ? prefix + name : name);
  for (const tensor of first.initializers) tensor.name = prefix + tensor.name;
  for (const node of first.nodes) {
    node.name = prefix + (node.name ?? "");
    node.inputs = node.inputs.map(renamed);
    node.outputs = node.outputs.map(renamed);
  }
}

/** Names of the values that a graph computes or holds. */
function defined(graph: Graph): Set<string> {
  const computed = graph.nodes.flatMap((node) => node.outputs).filter((name) => name);
  return new Set([...computed, ...graph.initializers.map((tensor) => tensor.name)]);
}

/** Removes nodes and constants that nothing reads. */
function sweep(graph: Graph): void {
  for (;;) {
    const read = new Set(["logits", ...graph.nodes.flatMap((node) => node.inputs)]);
    const kept = graph.nodes.filter((node) => node.outputs.some((name) => read.has(name)));
    if (kept.length === graph.nodes.length) {
      graph.initializers = graph.initializers.filter(({ name }) => read.has(name));
      return;
    }
    graph.nodes = kept;
  }
}

function opsetFields(parts: ModelFile[]): Field[] {
  const common = new Map<string, number>();
  for (const [domain, version] of parts.flatMap((part) => part.opsets)) {
    const other = common.get(domain);
    if (other !== undefined && other !== version) {
      throw new Error(
        `the graphs need versions ${other} and ${version} of the operators of ` +
          `'${domain || "ai.onnx"}'`,
      );
    }
    common.set(domain, version);
  }
  return [...common].map(([domain, version]) =>
    messageField(8, [textField(1, domain), numberField(2, version)]),
  );
}

function graphFields(graph: Graph, size: number, classes: number): Field[] {
  return [
    ...graph.nodes.map((node) => bytesField(1, encodeNode(node))),
    textField(2, "pocketune"),
    ...graph.initializers.map((tensor: TensorProto) => bytesField(5, encodeTensor(tensor))),
    valueField(11, "images", UINT8, [size, size, 3]),
    valueField(12, "logits", FLOAT32, [classes]),
  ];
}

/** An input or output whose first size is open. */
function valueField(number: number, name: string, type: number, shape: number[]): Field {
  const dims = [textField(2, "N"), ...shape.map((size) => numberField(1, size))];
  const shapeField = messageField(
    2,
    dims.map((dim) => messageField(1, [dim])),
  );
  const tensor = messageField(1, [numberField(1, type), shapeField]);
  return messageField(number, [textField(1, name), messageField(2, [tensor])]);
}
