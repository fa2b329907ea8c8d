/**
 * Tensors with metadata in one safetensors file, with Pocketune's checksum over everything; as
 * `pocketune.kit.tensors`. Also plain safetensors files, as kits hold them.
 */
import { UserError, type State } from "../contract";
import { floatBytes, joined, product, sha256, shapeText, utf8 } from "./bytes";
import { decodeJson, dumpJson, Num, parseJson, type Json } from "./json";
import rules from "./rules.json";

const KEY = "pocketune";
const CHECKSUM = "sha256";
const META = "__metadata__";
/** Bytes of a value by the type's name; 8-bit values are states of optimizers. */
const BYTES: Record<string, number> = { F32: 4, I8: 1, U8: 1 };
const MOST_HEADER = 100_000_000; // the limit of the format's own reader

/** A file of `write_tensors`: float32 tensors and the JSON of its header. */
export interface TensorFile {
  tensors: State;
  metadata: Map<string, Json>;
}

/** The bytes of a file of a kind, such as `trained network`, with a JSON object in its header. */
export async function writeTensors(
  tensors: State,
  kind: string,
  metadata: Map<string, Json>,
): Promise<Uint8Array<ArrayBuffer>> {
  const described = new Map<string, Json>([
    ["kind", kind],
    ["schema", rules.tensorSchema],
    ...metadata,
  ]);
  const meta = new Map<string, Json>([[KEY, dumpJson(described)]]);
  const header = new Map<string, Json>([[META, meta]]);
  let end = 0;
  for (const [name, { shape, data }] of tensors) {
    const start = end;
    end += data.byteLength;
    header.set(
      name,
      new Map<string, Json>([
        ["dtype", "F32"],
        ["shape", shape],
        ["data_offsets", [start, end]],
      ]),
    );
  }
  const values = [...tensors.values()].map(({ data }) => floatBytes(data));
  meta.set(CHECKSUM, await sha256(utf8(dumpJson(header)), ...values));
  const text = utf8(dumpJson(header));
  const padding = new Uint8Array(-text.length & 7).fill(32);
  const length = new Uint8Array(8);
  new DataView(length.buffer).setUint32(0, text.length + padding.length, true);
  return joined([length, text, padding, ...values], Uint8Array);
}

/** Reads such a file. Throws UserError if it is damaged, of another kind, or a value is not finite. */
export async function readTensors(
  bytes: Uint8Array,
  kind: string,
  where: string,
  wanted: (name: string) => boolean = () => true,
): Promise<TensorFile> {
  const { header, data } = open(bytes, where);
  const stored = header.get(META);
  let metadata: Json;
  try {
    const text = stored instanceof Map ? stored.get(KEY) : undefined;
    metadata = parseJson(typeof text === "string" ? text : "{}");
  } catch {
    throw damaged(where, "its description is broken");
  }
  if (!(metadata instanceof Map) || metadata.get("kind") !== kind) {
    throw new UserError(`${where} is a safetensors file, but not a Pocketune ${kind}`);
  }
  const schema = metadata.get("schema");
  if (!(schema instanceof Num) || schema.value !== rules.tensorSchema) {
    throw new UserError(
      `${where} has schema ${schema instanceof Num ? schema.text : "none"} and this page reads ` +
        `${rules.tensorSchema}: use the version that wrote it`,
    );
  }
  const meta = stored as Map<string, Json>;
  const checksum = meta.get(CHECKSUM);
  meta.delete(CHECKSUM);
  if ((await sha256(utf8(dumpJson(header)), data)) !== checksum) {
    throw damaged(where, "its content is not what was written (wrong SHA-256)");
  }
  return { tensors: readState(header, data, where, wanted), metadata };
}

/** The tensors of a plain safetensors file. */
export function readPlain(bytes: Uint8Array, where: string): State {
  const { header, data } = open(bytes, where);
  return readState(header, data, where, () => true);
}

/** Checks that tensors of these names and shapes are there; others are left out. */
export function checkedState(
  values: State,
  shapes: ReadonlyMap<string, readonly number[]>,
  where: string,
): State {
  const found: State = new Map();
  for (const [name, shape] of shapes) {
    const value = values.get(name);
    if (!value) throw new UserError(`${where} lacks the tensor ${name}`);
    if (shapeText(value.shape) !== shapeText(shape)) {
      throw new UserError(
        `${where} holds ${name} as float32 of shape ${shapeText(value.shape)} where float32 of ` +
          `shape ${shapeText(shape)} is needed`,
      );
    }
    found.set(name, value);
  }
  return found;
}

function damaged(where: string, why: string): UserError {
  return new UserError(`${where} is damaged: ${why}`);
}

function open(bytes: Uint8Array, where: string): { header: Map<string, Json>; data: Uint8Array } {
  if (bytes.length < 8) throw damaged(where, "it is cut off");
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const size = view.getUint32(0, true) + view.getUint32(4, true) * 2 ** 32;
  if (size > Math.min(MOST_HEADER, bytes.length - 8)) throw damaged(where, "it is cut off");
  let header: Json;
  try {
    header = decodeJson(bytes.subarray(8, 8 + size));
  } catch (error) {
    throw damaged(where, (error as Error).message);
  }
  if (!(header instanceof Map)) throw damaged(where, "its header is not an object");
  return { header, data: bytes.subarray(8 + size) };
}

function readState(
  header: Map<string, Json>,
  data: Uint8Array,
  where: string,
  wanted: (name: string) => boolean,
): State {
  const found: State = new Map();
  const spans: [number, number][] = [];
  for (const [name, entry] of header) {
    if (name === META) continue;
    const { dtype, shape, start, end } = readEntry(entry, name, where);
    const item = BYTES[dtype];
    if (item === undefined) {
      throw damaged(where, `its tensor ${name} is ${dtype} where F32 is expected`);
    }
    if (end - start !== product(shape) * item || end > data.length) {
      throw damaged(where, `its tensor ${name} is not of its shape`);
    }
    spans.push([start, end]);
    if (!wanted(name)) continue;
    if (dtype !== "F32") {
      throw damaged(where, `its tensor ${name} is ${dtype} where F32 is expected`);
    }
    // A copy, because a view would have to begin at a multiple of 4.
    const values = new Float32Array(data.slice(start, end).buffer);
    if (!values.every(Number.isFinite)) {
      throw damaged(where, `its tensor ${name} has a value that is not finite`);
    }
    found.set(name, { shape, data: values });
  }
  spans.sort(([a, b], [c, d]) => a - c || b - d);
  let place = 0;
  for (const [start, end] of spans) {
    if (start !== place) throw damaged(where, "its tensors overlap or leave gaps");
    place = end;
  }
  if (place !== data.length) throw damaged(where, "it does not end with its last tensor");
  return found;
}

function readEntry(
  entry: Json,
  name: string,
  where: string,
): { dtype: string; shape: number[]; start: number; end: number } {
  const numbers = (value: Json | undefined): number[] | null => {
    if (!Array.isArray(value)) return null;
    const found = value.map((each) => (each instanceof Num && !each.float ? each.value : -1));
    return found.every((each) => each >= 0 && Number.isSafeInteger(each)) ? found : null;
  };
  const fields = entry instanceof Map ? entry : new Map<string, Json>();
  const [dtype, shape] = [fields.get("dtype"), numbers(fields.get("shape"))];
  const offsets = numbers(fields.get("data_offsets"));
  const [start, end] = offsets ?? [];
  if (typeof dtype !== "string" || !shape || offsets?.length !== 2 || start! > end!) {
    throw damaged(where, `its tensor ${name} is not described as one`);
  }
  return { dtype, shape, start: start!, end: end! };
}
