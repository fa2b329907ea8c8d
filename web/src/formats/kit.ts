/** Opening a kit: everything that `pocketune kit check` checks without running it. */
import { UserError, type Kit, type Manifest, type State } from "../contract";
import { grouped, product, sha256 } from "./bytes";
import { BLOCKED_STEP, checkGraph, FEATURES, PREDICT, STEP } from "./graphs";
import { readManifest, shapesFor } from "./manifest";
import rules from "./rules.json";
import { checkedState, readPlain } from "./tensors";
import { openZip, type Entry } from "./zip";

export const MANIFEST = "manifest.json";
export const PARAMETERS = "parameters.safetensors";

/** The files of a kit or run by name, without the folder that they may lie in. */
export type Files = Map<string, Entry>;

/**
 * Opens the .zip of a kit, or of a run for the kit that it started from. Throws UserError if it is
 * no kit, incomplete, damaged, of another schema or task, or has a graph that a kit may not hold.
 *
 * @param where Name of the .zip, for messages.
 */
export async function readKit(zip: Uint8Array, where = "kit.zip"): Promise<Kit> {
  return openKit(openFiles(zip, where), where);
}

/** The files of a .zip of a kit or run; they are at the top, or in one folder. */
export function openFiles(zip: Uint8Array, where: string): Files {
  const all = openZip(zip, where);
  const manifests = [...all.keys()].filter((name) => name.split("/").at(-1) === MANIFEST);
  const first = manifests.sort((a, b) => a.length - b.length)[0];
  if (first === undefined) throw new UserError(`${where} is not a kit: it holds no ${MANIFEST}`);
  const prefix = first.slice(0, -MANIFEST.length);
  const own = [...all].filter(([name]) => name.startsWith(prefix));
  return new Map(own.map(([name, entry]) => [name.slice(prefix.length), entry]));
}

/** The kit in the files of a kit or run. */
export async function openKit(entries: Files, where: string): Promise<Kit> {
  const text = entries.get(MANIFEST)!.read();
  const manifest = readManifest(text, `${where}/${MANIFEST}`);
  const files = new Map<string, Uint8Array>();
  for (const name of kitFiles(manifest)) {
    files.set(name, await checkedFile(name, entries.get(name), manifest, where));
  }
  files.set(MANIFEST, text);
  const features = files.get(FEATURES);
  return {
    manifest,
    graphs: {
      ...(features && { features }),
      step: files.get(STEP)!,
      predict: files.get(PREDICT)!,
    },
    parameters: initialState(manifest, files.get(PARAMETERS)!, where),
    hash: await sha256(text),
    files,
  };
}

/** Names of the files of a kit with this manifest, except the manifest itself. */
export function kitFiles(manifest: Manifest): string[] {
  const first = manifest.features === null ? [] : [FEATURES];
  const blocked = BLOCKED_STEP in manifest.files ? [BLOCKED_STEP] : [];
  return [...first, STEP, PREDICT, PARAMETERS, ...blocked];
}

async function checkedFile(
  name: string,
  entry: Entry | undefined,
  manifest: Manifest,
  where: string,
): Promise<Uint8Array> {
  const expected = manifest.files[name];
  if (expected === undefined) {
    throw new UserError(`the manifest of the kit ${where} does not list ${name}`);
  }
  if (!entry) throw new UserError(`${name} of the kit ${where} is missing; copy the kit again`);
  if (entry.size > mostBytes(name, manifest)) {
    throw new UserError(
      `${name} of the kit ${where} has ${grouped(entry.size)} bytes, more than its manifest ` +
        "says; copy the kit again",
    );
  }
  const bytes = entry.read();
  if ((await sha256(bytes)) !== expected) {
    throw new UserError(
      `${name} of the kit ${where} is not the file that its manifest describes (wrong SHA-256): ` +
        "it is damaged or was changed; copy the kit again",
    );
  }
  if (name !== PARAMETERS) checkGraph(name, bytes, manifest, `${name} of the kit ${where}`);
  return bytes;
}

/** Most bytes of a file, so that it is not unpacked before it is known to be far too large. */
function mostBytes(name: string, manifest: Manifest): number {
  if (name === PARAMETERS) {
    const specs = [...manifest.parameters, ...manifest.statistics];
    return specs.reduce((sum, spec) => sum + 4 * product(spec.shape) + rules.each, rules.room);
  }
  const graph = name === BLOCKED_STEP ? "step" : name.replace(/\.onnx$/, "");
  const { weights, nodes } = manifest.graphs[graph]!;
  return rules.room + weights + rules.each * nodes;
}

function initialState(manifest: Manifest, bytes: Uint8Array, where: string): State {
  const file = `${PARAMETERS} of the kit ${where}`;
  return checkedState(
    readPlain(bytes, file),
    shapesFor(manifest, manifest.task.classes.length),
    file,
  );
}
