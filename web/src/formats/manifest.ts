/** The description of a kit, read with the checks and messages of `pocketune.kit.manifest`. */
import { UserError, type Manifest, type TaskName, type TaskSpec } from "../contract";
import { grouped, product, shapeText } from "./bytes";
import { fromJson, type Json } from "./json";
import rules from "./rules.json";
import {
  dict,
  fields,
  finite,
  list,
  object,
  oneOf,
  orNull,
  parseObject,
  Place,
  text,
  whole,
  type Read,
} from "./schema";

/** No class of a kit, run or delta has these in its name. */
export const CHARACTERS_NOT_SHOWN =
  // eslint-disable-next-line no-control-regex
  /[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/u;

const shape = list(whole(1));
const anything: Read<Record<string, unknown>> = dict((value: Json): unknown => fromJson(value));

/** What the page trains; kits of other tasks are refused in one sentence. */
const TRAINED: readonly string[] = ["classification", "attributes"] satisfies TaskName[];

const options = fields<Omit<TaskSpec, "name"> & { label_smoothing: number }>({
  classes: list(text),
  head: list(text),
  label_smoothing: finite,
} as never);

/** A sentence that says itself what to do. */
class Finished extends UserError {}

export const readTask: Read<TaskSpec> = (value, place) => {
  const left = new Map(object(value, place));
  const name = left.get("name") ?? null;
  left.delete("name");
  if (typeof name !== "string" || !rules.tasks.includes(name)) {
    throw place.field("name").expected(`one of ${rules.tasks.join(", ")}`, name);
  }
  if (!TRAINED.includes(name)) {
    throw new Finished(
      `${place.file} is of the task ${name}, and this page trains ${TRAINED.join(" and ")} alone: ` +
        "use the command line for it",
    );
  }
  const task = { name, ...options(left, place) } as TaskSpec;
  const problem = problemOfTask(task);
  if (problem) throw new UserError(`${place.toString()}: ${problem}`);
  return task;
};

function problemOfTask(task: TaskSpec): string | null {
  const strange = task.classes.find((name) => CHARACTERS_NOT_SHOWN.test(name));
  if (strange !== undefined) {
    return "a name among the classes has a character that cannot be shown; rename it";
  }
  if (!task.classes.length || new Set(task.classes).size < task.classes.length) {
    return `classes [${task.classes.join(", ").slice(0, 200)}] must be one or more different names`;
  }
  const smoothing = task.label_smoothing ?? 0;
  if (smoothing < 0 || smoothing >= 1) return `label_smoothing=${smoothing} must lie in [0, 1)`;
  return null;
}

const work = dict(fields({ calls: whole(), flops: whole(), bytes: whole() }));
const graph = fields({
  memory: whole(),
  flops: whole(),
  nodes: whole(),
  weights: whole(),
  largest: whole(),
  work,
  arena: whole(),
});
const mask = fields({ name: text, shape, keep: finite });
const quantization = fields({
  activations: oneOf(8, 32),
  images: whole(),
  error: orNull(finite),
  accuracy: orNull(finite),
  float_accuracy: orNull(finite),
  layers: whole(),
  float_layers: whole(),
});

const manifest = fields<Manifest>({
  version: text,
  network: anything,
  method: anything,
  task: readTask,
  size: whole(1),
  mean: list(finite, 3) as Read<[number, number, number]>,
  std: list(finite, 3) as Read<[number, number, number]>,
  batch: whole(1),
  micro_batch: whole(1),
  features: orNull(shape),
  embeddings: orNull(whole(1)),
  parameters: list(
    fields({ name: text, shape, group: oneOf("main", "decode_head", "branch", "head") }),
  ),
  statistics: list(fields({ name: text, shape })),
  masks: list(mask),
  graphs: dict(graph),
  files: dict(text),
  quantization: orNull(quantization),
  schema: whole(1),
});

/**
 * Reads `manifest.json`. Throws UserError if it is of another schema or task, or a field is missing,
 * unknown, of the wrong type, or contradicts another.
 */
export function readManifest(bytes: Uint8Array, where = "manifest.json"): Manifest {
  try {
    const data = parseObject(bytes, where);
    checkSchema(data.get("schema") ?? null, where);
    const found = manifest(data, new Place(where));
    for (const problem of problems(found)) {
      throw new UserError(`${where}: the manifest ${problem}`);
    }
    return found;
  } catch (error) {
    if (!(error instanceof UserError) || error instanceof Finished) throw error;
    throw new UserError(`${error.message}; build the kit again or copy it again`);
  }
}

function checkSchema(value: Json, where: string): void {
  if (typeof value !== "object" || value === null || !("float" in value) || value.float) return;
  const schema = value.value;
  if (schema === rules.kitSchema) return;
  const reads = `(its schema is ${schema}, this version reads ${rules.kitSchema})`;
  throw new Finished(
    schema > rules.kitSchema
      ? `${where} needs a newer studio ${reads}; reload the page, or upgrade pocketune`
      : `${where} was written by an older pocketune ${reads}; build the kit again from its network`,
  );
}

/** Sentences about fields that contradict each other; the first one is shown. */
function* problems(m: Manifest): Generator<string> {
  const names = [...m.parameters, ...m.statistics, ...m.masks].map((spec) => spec.name);
  const shapes = new Map(m.parameters.map((spec) => [spec.name, spec.shape]));
  if (new Set(names).size < names.length) yield "names a tensor twice";
  const least = Math.min(...m.std);
  if (least <= 0) yield `has a standard deviation of ${least}, which must be above 0`;
  for (const name of m.task.head) {
    const own = shapes.get(name);
    if (!own) yield `names ${name} as part of the head, which is not among the parameters`;
    else if (own[0] !== m.task.classes.length) {
      yield `has ${m.task.classes.length} classes but gives ${name} the shape ${shapeText(own)}`;
    }
  }
  if (m.batch % m.micro_batch) {
    yield `has a batch of ${m.batch} images, no multiple of micro_batch=${m.micro_batch}`;
  }
  if (m.micro_batch < m.batch && m.statistics.length) {
    yield `has statistics of a batch, and micro_batch=${m.micro_batch} is only a part of one`;
  }
  const graphs = m.features === null ? ["predict", "step"] : ["features", "predict", "step"];
  const listed = Object.keys(m.graphs).sort().join(", ");
  if (listed !== graphs.join(", ")) {
    yield `lists the graphs ${listed || "none"} where the kit has ${graphs.join(", ")}`;
  }
  for (const [name, shape] of tensors(m)) {
    if (product(shape) > rules.mostElements) {
      const most = grouped(rules.mostElements);
      yield `gives ${name} the shape ${shapeText(shape)}, which is more than ${most} elements`;
    }
  }
  const unknown = Object.keys(m.files).filter((name) => !rules.kitFiles.includes(name));
  if (unknown.length) {
    const known = [...rules.kitFiles].sort().join(", ");
    yield `lists '${unknown.sort()[0]}' under 'files', which are ${known}`;
  }
  for (const { name, keep } of m.masks) {
    if (!(keep > 0 && keep <= 1)) {
      yield `gives ${name} keep=${keep}, which must be above 0 and up to 1`;
    }
  }
  const q = m.quantization as { layers: number; float_layers: number } | null;
  if (q && q.float_layers > q.layers) {
    yield `says that ${q.float_layers} layers stay in float32 of only ${q.layers}`;
  }
}

function* tensors(m: Manifest): Generator<[string, number[]]> {
  for (const { name, shape } of [...m.parameters, ...m.statistics, ...m.masks]) yield [name, shape];
  yield ["a batch of images", [m.batch, m.size, m.size, 3]];
  yield ["a batch of features", [m.batch, ...(m.features ?? [])]];
  yield ["the output", [m.batch, m.task.classes.length]];
  yield ["the embeddings", [m.batch, m.embeddings ?? 1]];
}

/** The shape of each parameter and statistic for so many classes. */
export function shapesFor(m: Manifest, classes: number): Map<string, number[]> {
  return new Map(
    [...m.parameters, ...m.statistics].map(({ name, shape }) => [
      name,
      m.task.head.includes(name) ? [classes, ...shape.slice(1)] : shape,
    ]),
  );
}
