/**
 * Weights in 8 bits as products, in a graph for export; as `pocketune.device.use.dequantize`. A
 * runtime computes products of constants when it opens a file.
 */
import { ATTRIBUTE, attributes, type Graph, type NodeProto } from "./proto";
import { messageField, numberField, textField } from "./wire";

const FLOAT32 = 1;
const INT8 = 3;
const INTEGER = 2; // the type of an attribute

/**
 * Writes `DequantizeLinear(whole, scale)` of constants as `Cast(whole) * scale`, in place. Those with
 * an offset stay: a layer between them and dequantized maps computes with integers.
 */
export function dequantizeAsProducts(graph: Graph): void {
  const constants = new Map(graph.initializers.map((tensor) => [tensor.name, tensor]));
  graph.nodes = graph.nodes.flatMap((node) => {
    if (node.operator !== "DequantizeLinear" || node.inputs.length !== 2) return [node];
    const [whole, scale] = node.inputs.map((name) => constants.get(name));
    if (!whole || !scale || whole.type !== INT8) return [node];
    const weight = node.outputs[0]!;
    const axis = attributes(node).get("axis") ?? 1;
    const behind = scale.dims.length ? whole.dims.length - 1 - axis : 0;
    const dims = [...scale.dims, ...Array<number>(behind).fill(1)];
    graph.initializers.push({ ...scale, name: `${weight}/scale`, dims });
    const cast: NodeProto = {
      inputs: [whole.name],
      outputs: [`${weight}/whole`],
      name: `${weight}/cast`,
      operator: "Cast",
      rest: [
        messageField(ATTRIBUTE, [
          textField(1, "to"),
          numberField(3, FLOAT32),
          numberField(20, INTEGER),
        ]),
      ],
    };
    const inputs = [...cast.outputs, `${weight}/scale`];
    return [cast, { inputs, outputs: [weight], name: weight, operator: "Mul", rest: [] }];
  });
}
