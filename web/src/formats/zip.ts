/**
 * .zip files, read strictly: sizes and checksums are compared before and after unpacking, and
 * nothing is unpacked that exceeds the limits. Archives are read as a whole from memory.
 */
import { inflateSync, zipSync, type Zippable } from "fflate";
import { UserError } from "../contract";
import { grouped } from "./bytes";

export interface Limits {
  /** Most bytes of the archive. */
  archive: number;
  /** Most files in it. */
  files: number;
  /** Most bytes of all files, unpacked. */
  unpacked: number;
}

/** Limits of kits and runs. A run of a kit of 200 MB keeps three copies of its values. */
export const LIMITS: Limits = { archive: 512 << 20, files: 1000, unpacked: 1 << 30 };

/** A file may unpack to so many bytes, and so many for each packed one; as `kit/packed.py`. */
const ROOM = 1 << 20;
const EXPANSION = 100;

const END = 0x06054b50;
const ENTRY = 0x02014b50;
const LOCAL = 0x04034b50;
const END_BYTES = 22;
const LONGEST_COMMENT = 0xffff;

/** A file of an archive, which is unpacked when it is read. */
export interface Entry {
  name: string;
  /** Bytes, unpacked. */
  size: number;
  /** Throws UserError if it is damaged. */
  read(): Uint8Array<ArrayBuffer>;
}

/**
 * The files of an archive by name, folders left out.
 *
 * @param where Name of the archive, for messages.
 */
export function openZip(
  zip: Uint8Array,
  where: string,
  limits: Limits = LIMITS,
): Map<string, Entry> {
  if (zip.length > limits.archive) {
    throw new UserError(`${where} has ${grouped(zip.length)} bytes, more than can be opened here`);
  }
  try {
    return readDirectory(zip, where, limits);
  } catch (error) {
    if (error instanceof UserError) throw error;
    throw damaged(where, error);
  }
}

function damaged(where: string, error: unknown): UserError {
  return new UserError(`${where} is damaged: ${(error as Error).message}; copy it again`);
}

function readDirectory(zip: Uint8Array, where: string, limits: Limits): Map<string, Entry> {
  const view = new DataView(zip.buffer, zip.byteOffset, zip.byteLength);
  const end = findEnd(view);
  if (end < 0) throw new UserError(`${where} is not a .zip, or is cut off; copy it again`);
  const count = view.getUint16(end + 10, true);
  if (count > limits.files) {
    throw new UserError(`${where} has ${grouped(count)} files, more than can be opened here`);
  }
  const found = new Map<string, Entry>();
  let place = view.getUint32(end + 16, true);
  let packed = 0;
  let unpacked = 0;
  for (let index = 0; index < count; index++) {
    if (view.getUint32(place, true) !== ENTRY) throw new Error("its list of files is broken");
    const header: Header = {
      flags: view.getUint16(place + 8, true),
      method: view.getUint16(place + 10, true),
      crc: view.getUint32(place + 16, true),
      packed: view.getUint32(place + 20, true),
      size: view.getUint32(place + 24, true),
      offset: view.getUint32(place + 42, true),
    };
    const long = view.getUint16(place + 28, true);
    const name = nameOf(zip.subarray(place + 46, place + 46 + long), header.flags);
    place += 46 + long + view.getUint16(place + 30, true) + view.getUint16(place + 32, true);
    packed += header.packed;
    unpacked += header.size;
    if (name.endsWith("/")) continue;
    if (found.has(name)) throw new Error(`it has the file ${name} twice`);
    if (header.size > ROOM + EXPANSION * header.packed) {
      throw new UserError(
        `${name} in ${where} unpacks ${grouped(header.packed)} bytes to ${grouped(header.size)}, ` +
          "which no file of a run does; copy it again",
      );
    }
    const read = () => {
      try {
        return unpack(zip, view, header);
      } catch (error) {
        throw damaged(`${name} in ${where}`, error);
      }
    };
    found.set(name, { name, size: header.size, read });
  }
  // Entries that share bytes would unpack to more than the archive can hold.
  if (packed > zip.length) throw new Error("its files overlap");
  if (unpacked > limits.unpacked) {
    throw new UserError(
      `${where} unpacks to ${grouped(unpacked)} bytes, more than can be opened here`,
    );
  }
  return found;
}

interface Header {
  flags: number;
  method: number;
  crc: number;
  packed: number;
  size: number;
  offset: number;
}

function findEnd(view: DataView): number {
  const first = Math.max(0, view.byteLength - END_BYTES - LONGEST_COMMENT);
  for (let place = view.byteLength - END_BYTES; place >= first; place--) {
    const fits = () => place + END_BYTES + view.getUint16(place + 20, true) === view.byteLength;
    if (view.getUint32(place, true) === END && fits()) return place;
  }
  return -1;
}

const UTF8_NAME = 1 << 11;

function nameOf(bytes: Uint8Array, flags: number): string {
  if (flags & UTF8_NAME) return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  return Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
}

function unpack(zip: Uint8Array, view: DataView, header: Header): Uint8Array<ArrayBuffer> {
  if (header.flags & 1) throw new Error("it is encrypted");
  if (view.getUint32(header.offset, true) !== LOCAL) throw new Error("its beginning is lost");
  const names = view.getUint16(header.offset + 26, true) + view.getUint16(header.offset + 28, true);
  const start = header.offset + 30 + names;
  if (start + header.packed > zip.length) throw new Error("it is cut off");
  const content = zip.subarray(start, start + header.packed);
  let found: Uint8Array<ArrayBuffer>;
  if (header.method === 0) found = content.slice();
  else if (header.method === 8) {
    found = inflateSync(content, { out: new Uint8Array(header.size) }) as Uint8Array<ArrayBuffer>;
  } else throw new Error(`it is packed by the unknown method ${header.method}`);
  if (found.length !== header.size || crc32(found) !== header.crc) {
    throw new Error("its checksum is wrong");
  }
  return found;
}

let table: Uint32Array | undefined;

function crc32(bytes: Uint8Array): number {
  table ??= Uint32Array.from({ length: 256 }, (_, byte) => {
    let value = byte;
    for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
    return value;
  });
  let sum = 0xffffffff;
  for (const byte of bytes) sum = (sum >>> 8) ^ table[(sum ^ byte) & 255]!;
  return (sum ^ 0xffffffff) >>> 0;
}

/** An archive of these files. Equal files give equal archives: all have one time. */
export function writeZip(files: ReadonlyMap<string, Uint8Array>): Uint8Array<ArrayBuffer> {
  const all: Zippable = {};
  for (const [name, content] of files) all[name] = content;
  return zipSync(all, { level: 6, mtime: new Date(1980, 0, 1) }) as Uint8Array<ArrayBuffer>;
}
