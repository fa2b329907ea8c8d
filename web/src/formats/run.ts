/** A run as one .zip, as the command line writes and reads it: the kit, and what training gave. */
import {
  UserError,
  type Kit,
  type Known,
  type LogLine,
  type PhotoEntry,
  type RunResult,
  type Score,
  type State,
} from "../contract";
import { product, sha256, utf8 } from "./bytes";
import { dumpJson, float, fromJson, parseJson, toJson, type Json } from "./json";
import { MANIFEST, openFiles, openKit, type Files } from "./kit";
import { KNOWN_KIND, knownOf, knownTensors } from "./known";
import { shapesFor } from "./manifest";
import rules from "./rules.json";
import { dict, fields, list, object, Place, text, whole, type Read } from "./schema";
import { readScore, scoreJson } from "./score";
import { checkedState, readTensors, writeTensors, type TensorFile } from "./tensors";
import { writeZip } from "./zip";

const BEST = "best.safetensors";
const LAST = "last.safetensors";
const KNOWN = "known.safetensors";
const METRICS = "metrics.jsonl";
const RESULT = "result.json";
const TRAINED_KIND = "trained network";

/** Trained values, and what is known of them. */
export interface Trained {
  /** In the order of the logits. */
  classes: string[];
  /** Parameters and running statistics. */
  parameters: State;
  known: Known | null;
  /** Optimizer steps; 0 for the values of a kit. */
  step: number;
  /** Score on the validation photos. */
  score: Score | null;
}

/** A kit with its values: its own, or those of a run. */
export interface Model extends Trained {
  kit: Kit;
  isRun: boolean;
  /** The lines of the run's log; empty for a kit. */
  log: LogLine[];
}

/** What a page knows about a run beside its result. */
export interface About {
  /** Name of the project, or of the folder that the photos came from. */
  photosName: string;
  photos: PhotoEntry[];
  /** Version of the page. */
  version: string;
  machine: { system: string; processor: string; cores: number };
}

/** The values of a finished run. */
export function trainedOf(result: RunResult): Trained {
  const { classes, parameters, known, counters } = result;
  return { classes, parameters, known, step: counters.bestStep, score: counters.best };
}

/** Validation photos that the result is of: not those that were deleted before it was made. */
export function scored({ confusion: [counts = []] }: RunResult): number {
  return counts.flat().reduce((a, b) => a + b, 0);
}

/**
 * Opens the .zip of a run, for its best values, or its last ones if it has not been validated yet; or
 * of a kit, for its initial values. Throws UserError if it is neither, or damaged.
 *
 * @param where Name of the .zip, for messages.
 */
export async function readModel(zip: Uint8Array, where = "run.zip"): Promise<Model> {
  const files = openFiles(zip, where);
  const kit = await openKit(files, where);
  const trained = await readTrained(files, kit, where);
  if (trained === null) {
    const { classes } = kit.manifest.task;
    const own = { classes, parameters: kit.parameters, known: null, step: 0, score: null };
    return { kit, isRun: false, log: [], ...own };
  }
  const known = await readKnown(files, kit, trained.step, where);
  return { kit, isRun: true, log: readLog(files), ...trained, known };
}

async function readTrained(files: Files, kit: Kit, where: string): Promise<Trained | null> {
  const best = files.get(BEST);
  const last = files.get(LAST);
  if (best) {
    const file = `${BEST} in ${where}`;
    const found = await readTensors(best.read(), TRAINED_KIND, file);
    return trainedValues(found, bestHeader, kit, file);
  }
  if (!last) return null;
  const file = `${LAST} in ${where}`;
  const wanted = (name: string) => GROUPS.some((group) => name.startsWith(group));
  const found = await readTensors(last.read(), "checkpoint", file, wanted);
  const plain = [...found.tensors].map(([name, value]) => [withoutGroup(name), value] as const);
  return trainedValues({ ...found, tensors: new Map(plain) }, lastHeader, kit, file);
}

const GROUPS = ["parameters/", "statistics/"];
const withoutGroup = (name: string) => name.slice(name.indexOf("/") + 1);

type Header = Pick<Trained, "classes" | "step" | "score"> & { kit: string };

const bestHeader: Read<Header> = (value, place) => {
  const left = new Map(object(value, place));
  for (const name of ["kind", "schema"]) left.delete(name);
  const own = fields<Header>({ classes: list(text), kit: text, step: whole(), score: readScore });
  return own(left, place);
};

const lastHeader: Read<Header> = (value, place) => {
  const header = object(value, place);
  const identity = object(header.get("identity") ?? null, place.field("identity"));
  const counters = object(header.get("counters") ?? null, place.field("counters"));
  return {
    classes: list(text)(identity.get("classes") ?? null, place.field("identity.classes")),
    kit: text(identity.get("kit") ?? null, place.field("identity.kit")),
    step: whole()(counters.get("step") ?? null, place.field("counters.step")),
    score: null,
  };
};

function trainedValues(
  { tensors, metadata }: TensorFile,
  read: Read<Header>,
  kit: Kit,
  file: string,
): Trained {
  const { classes, kit: hash, step, score } = read(metadata, new Place(file));
  if (hash !== kit.hash) throw new UserError(`${file} does not belong to the kit next to it`);
  if (!classes.length || new Set(classes).size < classes.length) {
    throw new UserError(`${file} must have one or more different classes`);
  }
  const parameters = checkedState(tensors, shapesFor(kit.manifest, classes.length), file);
  return { classes, parameters, known: null, step, score };
}

async function readKnown(
  files: Files,
  kit: Kit,
  step: number,
  where: string,
): Promise<Known | null> {
  const entry = files.get(KNOWN);
  if (!entry) return null;
  const file = `${KNOWN} in ${where}`;
  const { tensors, metadata } = await readTensors(entry.read(), KNOWN_KIND, file);
  const header = dict<unknown>((value) => fromJson(value))(metadata, new Place(file));
  return header["kit"] === kit.hash && header["step"] === step ? knownOf(tensors, file) : null;
}

/** The lines of a log; what is no line of one, as of an edited file, is left out. */
function readLog(files: Files): LogLine[] {
  const entry = files.get(METRICS);
  if (!entry) return [];
  const lines = new TextDecoder().decode(entry.read()).split("\n");
  return lines.flatMap((line) => {
    try {
      const value = fromJson(parseJson(line)) as LogLine;
      const isLine = typeof value.kind === "string" && Number.isInteger(value.step);
      return isLine ? [value] : [];
    } catch {
      return [];
    }
  });
}

/**
 * The .zip of a run, which `pocketune predict`, `evaluate`, `export`, `report`, `delta save` and
 * `train --kit` take.
 */
export async function writeRun(
  kit: Kit,
  result: RunResult,
  about: About,
): Promise<Uint8Array<ArrayBuffer>> {
  const { classes, known, counters } = result;
  const files = new Map(kit.files);
  const shapes = shapesFor(kit.manifest, classes.length);
  const values = checkedState(result.parameters, shapes, "the run");
  const best = await writeTensors(
    values,
    TRAINED_KIND,
    new Map<string, Json>([
      ["classes", classes],
      ["kit", kit.hash],
      ["step", counters.bestStep],
      ["score", scoreJson(counters.best)],
    ]),
  );
  files.set(BEST, best);
  if (known) {
    const own = new Map<string, Json>([
      ["kit", kit.hash],
      ["step", counters.bestStep],
    ]);
    files.set(KNOWN, await writeTensors(knownTensors(known), KNOWN_KIND, own));
  }
  const lines = result.log.map((line) => dumpJson(toJson(line)) + "\n");
  files.set(METRICS, utf8(lines.join("")));
  const record = await recordOf(kit, result, about, best.length);
  files.set(RESULT, utf8(dumpJson(record, { indent: 2, unicode: true }) + "\n"));
  return writeZip(files);
}

/** Settings that are floats in Python. */
const FLOATS = new Set([
  ...["lr", "head_lr", "bias_lr", "side_lr", "decode_lr"],
  ...["momentum", "weight_decay", "clip", "balance", "checkpoint_seconds", "val_fraction"],
]);

/** The content of `result.json`, field by field as `RunRecord` of Python has it. */
async function recordOf(
  kit: Kit,
  result: RunResult,
  about: About,
  resultBytes: number,
): Promise<Json> {
  const { manifest } = kit;
  const { classes, counters, log } = result;
  const raw = parseJson(new TextDecoder().decode(kit.files.get(MANIFEST))) as Map<string, Json>;
  const network = new Map(raw.get("network") as Map<string, Json>).set("classes", classes.length);
  const steps = log.filter((line) => line.kind === "step");
  const shapes = shapesFor(manifest, classes.length);
  const { features, step } = manifest.graphs;
  const flops = step!.flops / manifest.micro_batch + (features?.flops ?? 0); // of a photo
  return toJson(
    new Map<string, unknown>([
      ["version", about.version],
      ["kit", kit.hash],
      ["network", network],
      ["method", raw.get("method")],
      ["frozen_bits", manifest.quantization === null ? 32 : 8],
      ["task", manifest.task.name],
      ["classes", classes],
      ["size", manifest.size],
      ["batch", manifest.batch],
      ["settings", settingsJson(result)],
      [
        "photos",
        {
          name: about.photosName || "photos",
          training: result.photos.training,
          validation: result.photos.validation,
          fingerprint: await fingerprint(about.photos, classes),
          imbalance: float(result.photos.imbalance),
          unreadable: result.photos.validation - scored(result),
          untrained: 0, // photos are decoded when they are collected
        },
      ],
      ["engine", result.runtime || "onnxruntime-web"],
      ["machine", { ...about.machine, python: "none, a browser" }],
      ["steps", counters.step],
      ["reason", counters.finished ?? "steps"],
      ["start", scoreJson(counters.start)],
      ["best", scoreJson(counters.best)],
      ["best_step", counters.bestStep],
      ["last", scoreJson(result.last)],
      ["peak_memory", result.heapBytes],
      ["predicted_memory", null],
      ["seconds", float(result.seconds)],
      ["training_seconds", float(steps.reduce((sum, { seconds }) => sum + number(seconds), 0))],
      ["step_seconds", result.stepSeconds === null ? null : float(result.stepSeconds)],
      ["step_flops", flops * manifest.batch],
      [
        "parameters",
        manifest.parameters.reduce((n, { name }) => n + product(shapes.get(name)!), 0),
      ],
      ["result_bytes", resultBytes],
      ["head", counters.head || "random"],
      ["estimate", scoreJson(counters.estimate)],
      ["refitted", counters.refitted],
      ["memory_parts", null],
      ["schema", rules.recordSchema],
    ]),
  );
}

const number = (value: unknown): number => (typeof value === "number" ? value : 0);

function settingsJson(result: RunResult): Map<string, unknown> {
  const own: Record<string, unknown> = { ...result.settings };
  const names = Object.entries(rules.trainSettings) as [string, unknown][];
  return new Map(
    names.map(([name, preset]) => {
      const value = own[name] === undefined ? preset : own[name];
      return [name, typeof value === "number" && FLOATS.has(name) ? float(value) : value];
    }),
  );
}

/** Hash of the names and labels of the photos, in order. */
async function fingerprint(photos: PhotoEntry[], classes: string[]): Promise<string> {
  const lines = photos.map(({ name, label, split }) => [split, name, ...label]);
  return sha256(utf8(JSON.stringify([classes, ...lines])));
}
