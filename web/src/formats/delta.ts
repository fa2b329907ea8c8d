/** What a run changed against its kit, as one small file; see docs/delta.md. */
import { UserError, type Kit, type State, type Tensor } from "../contract";
import { floatBytes, sha256, utf8 } from "./bytes";
import { byCharacters, dumpJson, float, Num, parseJson, type Json } from "./json";
import { MANIFEST } from "./kit";
import { FEATURES, PREDICT } from "./graphs";
import { knownOf, knownTensors } from "./known";
import { readTask, shapesFor } from "./manifest";
import type { Trained } from "./run";
import { dict, fields, Place, text, whole } from "./schema";
import { readScore, scoreJson } from "./score";
import { checkedState, readTensors, writeTensors } from "./tensors";

const KIND = "delta";
const KNOWN = "known/";

const readHeader = fields({
  kit: text,
  base: text,
  network: dict((value: Json) => value),
  method: dict((value: Json) => value),
  task: readTask,
  step: whole(),
  score: readScore,
  content: text,
});

/** The bytes of the delta of trained values of a kit. */
export async function writeDelta(kit: Kit, trained: Trained): Promise<Uint8Array<ArrayBuffer>> {
  const { task } = kit.manifest;
  const values = checkedState(
    trained.parameters,
    shapesFor(kit.manifest, trained.classes.length),
    "the run",
  );
  const changed = [...values].filter(
    ([name, value]) => task.head.includes(name) || !sameBits(value, kit.parameters.get(name)!),
  );
  const tensors: State = new Map([
    ...changed,
    ...(trained.known ? knownTensors(trained.known, KNOWN) : []),
  ]);
  const raw = parseJson(new TextDecoder().decode(kit.files.get(MANIFEST))) as Map<string, Json>;
  const network = new Map(raw.get("network") as Map<string, Json>);
  const header = new Map<string, Json>([
    ["kit", kit.hash],
    ["base", await baseHash(kit)],
    ["network", network.set("classes", trained.classes.length)],
    ["method", raw.get("method")!],
    ["task", new Map(raw.get("task") as Map<string, Json>).set("classes", trained.classes)],
    ["step", trained.step],
    ["score", scoreJson(trained.score)],
  ]);
  header.set("content", await contentHash(header, tensors));
  return writeTensors(tensors, KIND, header);
}

/**
 * The trained values of a delta, and the kit among `kits` that it belongs to. Throws UserError if it
 * is damaged, no delta, or of none of the kits.
 *
 * @param kits Called with the hash of the kit that the run started from; gives kits one by one.
 * @param where Name of the file, for messages.
 */
export async function readDelta(
  bytes: Uint8Array,
  kits: (own: string) => AsyncIterable<Kit> | Iterable<Kit>,
  where = "the delta",
): Promise<Trained & { kit: Kit }> {
  const { tensors, metadata } = await readTensors(bytes, KIND, where);
  const own = new Map([...metadata].filter(([name]) => name !== "kind" && name !== "schema"));
  const header = readHeader(own, new Place(where));
  if ((await contentHash(own, tensors)) !== header.content) {
    throw new UserError(`${where} is damaged; save the delta again or copy it again`);
  }
  for await (const kit of kits(header.kit)) {
    if ((await baseHash(kit)) !== header.base) continue;
    const { classes } = header.task;
    const about = [...tensors].filter(([name]) => name.startsWith(KNOWN));
    const values = new Map([...kit.parameters, ...tensors]);
    return {
      kit,
      classes,
      parameters: checkedState(values, shapesFor(kit.manifest, classes.length), where),
      known: about.length
        ? knownOf(new Map(about.map(([name, value]) => [name.slice(KNOWN.length), value])), where)
        : null,
      step: header.step,
      score: header.score,
    };
  }
  throw new UserError(
    `${where} is a delta of the kit ${header.kit.slice(0, 12)}, which is not open here: open the ` +
      "kit that the run started from first",
  );
}

/** Hash of the parts of a kit that a delta does not hold; as `base_hash` of Python. */
export async function baseHash(kit: Kit): Promise<string> {
  const { files, size, task } = kit.manifest;
  const shapes = [...task.head]
    .sort(byCharacters)
    .map((name): [string, Json] => [name, kit.parameters.get(name)!.shape.slice(1)]);
  const facts = new Map<string, Json>([
    ["graphs", [files[FEATURES] ?? null, files[PREDICT]!]],
    ["size", size],
    ["task", task.name],
    ["head", new Map(shapes)],
  ]);
  const others = [...kit.parameters].filter(([name]) => !task.head.includes(name));
  return hash(facts, new Map(others));
}

function contentHash(header: Map<string, Json>, tensors: State): Promise<string> {
  const facts = new Map(header).set("content", null);
  // These are floats in Python, however a file spells them.
  for (const [name, numbers] of [
    ["task", ["label_smoothing"]],
    ["score", ["value", "loss"]],
  ] as const) {
    const part = facts.get(name);
    if (!(part instanceof Map)) continue;
    const floats = new Map(part);
    for (const each of numbers) {
      const value = floats.get(each);
      if (value instanceof Num) floats.set(each, float(value.value));
    }
    facts.set(name, floats);
  }
  return hash(facts, tensors);
}

/** SHA-256 of JSON and tensors, whatever their order. */
function hash(facts: Map<string, Json>, tensors: State): Promise<string> {
  const parts = [utf8(dumpJson(facts, { sorted: true }))];
  for (const name of [...tensors.keys()].sort(byCharacters)) {
    const { shape, data } = tensors.get(name)!;
    parts.push(utf8(dumpJson([name, shape])), floatBytes(data));
  }
  return sha256(...parts);
}

/** Whether two tensors are equal bit for bit, also in the sign of zero. */
function sameBits(one: Tensor, other: Tensor): boolean {
  if (one.shape.join() !== other.shape.join()) return false;
  const [a, b] = [floatBytes(one.data), floatBytes(other.data)];
  return a.every((byte, place) => byte === b[place]);
}
