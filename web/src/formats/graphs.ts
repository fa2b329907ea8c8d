/** What the graphs of a kit may hold, checked before the runtime sees them; as `kit/graphs.py`. */
import { UserError, type Manifest } from "../contract";
import { grouped } from "./bytes";
import { readOutline, type Outline, type Value } from "./outline";
import rules from "./rules.json";

export const FEATURES = "features.onnx";
export const STEP = "step.onnx";
export const BLOCKED_STEP = "step.blocked.onnx";
export const PREDICT = "predict.onnx";

const TYPES: Readonly<Record<string, number>> = rules.types;

type Shape = readonly (number | null)[];
/** A type of null is any, a size of null too. */
type Declared = Map<string, [type: string | null, shape: Shape]>;

/** The inputs that a graph may have, and the outputs that it must have. */
interface Signature {
  inputs: Declared;
  outputs: Declared;
}

/** Checks a graph of a kit. Throws UserError, whose sentence begins with `where`. */
export function checkGraph(
  name: string,
  data: Uint8Array,
  manifest: Manifest,
  where: string,
): void {
  const refuse = (problem: string) =>
    new UserError(`${where} is not a graph that a kit may hold: ${problem}`);
  let outline: Outline;
  try {
    outline = readOutline(data);
  } catch (error) {
    throw refuse((error as Error).message);
  }
  const domains = new Map([["", rules.operators]]);
  if (name === BLOCKED_STEP) {
    domains.set(rules.blockedDomain, rules.blockedOperators);
    domains.set(rules.fusedDomain, rules.fusedOperators);
  }
  for (const problem of strangeParts(outline, domains)) throw refuse(problem);
  for (const problem of differences(outline, signature(manifest, name))) throw refuse(problem);
}

const within = (value: number, [first, last]: readonly number[]) =>
  value >= first! && value <= last!;

function* strangeParts(outline: Outline, domains: Map<string, string[]>): Generator<string> {
  if (!within(outline.irVersion, rules.irVersions)) {
    yield `its format is version ${outline.irVersion}`;
  }
  const [first, last] = rules.opsets;
  for (const [domain, version] of outline.opsets) {
    if (!domains.has(domain)) yield `it asks for operators of '${domain}'`;
    else if (!domain && !within(version, rules.opsets)) {
      yield `it asks for version ${version} of the operators, not ${first} to ${last}`;
    }
  }
  if (Math.max(outline.nodes.length, outline.constants.length) > rules.mostNodes) {
    yield `it has more than ${grouped(rules.mostNodes)} operators or constants`;
  }
  const known = new Map([...domains].map(([domain, names]) => [domain, new Set(names)]));
  for (const { operator, domain } of outline.nodes) {
    if (!known.get(domain)?.has(operator)) {
      yield `it has the operator ${domain ? domain + "." : ""}${operator}`;
    }
  }
}

/** What of its inputs and outputs is not as the manifest says. */
function* differences(outline: Outline, expected: Signature): Generator<string> {
  for (const [kind, values, specs] of [
    ["input", outline.inputs, expected.inputs],
    ["output", outline.outputs, expected.outputs],
  ] as const) {
    if (new Set(values.map((value) => value.name)).size < values.length) {
      yield `it names an ${kind} twice`;
    }
    for (const value of values) {
      const spec = specs.get(value.name);
      if (!spec) yield `its ${kind} ${value.name} is not in the manifest`;
      else if (!agrees(value, ...spec)) {
        yield `its ${kind} ${value.name} is not of the type and shape of the manifest`;
      }
    }
  }
  const found = new Set(outline.outputs.map((value) => value.name));
  for (const name of expected.outputs.keys()) {
    if (!found.has(name)) yield `it lacks the output ${name}`;
  }
}

function agrees(value: Value, type: string | null, shape: Shape): boolean {
  if (type !== null && value.type !== TYPES[type]) return false;
  if (value.shape === null) return true;
  return (
    value.shape.length === shape.length &&
    value.shape.every((have, i) => have === null || shape[i] === null || have === shape[i])
  );
}

/** The inputs and outputs of a graph of a kit. */
export function signature(manifest: Manifest, name: string): Signature {
  const { size, micro_batch: batch, features, embeddings, task } = manifest;
  const classes = task.classes.length;
  const images: Declared = new Map([["images", ["uint8", [null, size, size, 3]]]]);
  const between: Declared =
    features === null ? images : new Map([["features", ["float32", [null, ...features]]]]);
  if (name === FEATURES) return { inputs: images, outputs: between };
  const inputs: Declared = new Map(between);
  const values: Declared = new Map();
  for (const spec of [...manifest.parameters, ...manifest.statistics]) {
    // The head's number of classes is open.
    const shape = task.head.includes(spec.name) ? [null, ...spec.shape.slice(1)] : spec.shape;
    values.set(spec.name, ["float32", shape]);
    inputs.set(spec.name, ["float32", shape]);
  }
  if (name === PREDICT) {
    const outputs: Declared = new Map([["logits", ["float32", [null, classes]]]]);
    if (embeddings !== null) outputs.set("embeddings", ["float32", [null, embeddings]]);
    return { inputs, outputs };
  }
  const attributes = task.name === "attributes";
  inputs.set("labels", attributes ? ["uint8", [batch, classes]] : ["int64", [batch]]);
  for (const mask of manifest.masks) inputs.set(mask.name, ["float32", mask.shape]);
  const outputs: Declared = new Map([
    ["loss", ["float32", []]],
    ["correct", [null, []]],
  ]);
  for (const { name } of manifest.parameters) outputs.set(`grad.${name}`, values.get(name)!);
  for (const { name } of manifest.statistics) outputs.set(`new.${name}`, values.get(name)!);
  return { inputs, outputs };
}
