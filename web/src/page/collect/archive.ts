/** A .zip of photos, read in place: only what is asked for is unpacked. */
import { UserError } from "../../contract";
import { texts } from "../texts";
import { tidy } from "./labels/places";

export interface Member {
  path: string;
  bytes: number;
  /** @throws UserError if the archive is damaged there. */
  open(): Promise<Blob>;
}

const MOST_BYTES = 128 << 20;
const LONGEST_COMMENT = 0xffff;
const END = 0x06054b50;
const MEMBER = 0x02014b50;
const LOCAL = 0x04034b50;
const STORED = 0;
const DEFLATED = 8;
const ENCRYPTED = 1;
const UTF8_NAME = 1 << 11;
/** The upper half of code page 437, in which other names are read, as in Python. */
const CP437 = [
  ..."ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐",
  ..."└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\xa0",
];
/** The value of a number that is in a field of ZIP64. */
const ELSEWHERE = 0xffffffff;

/**
 * The files of an archive.
 *
 * @throws UserError if it is no .zip, or of a kind that is not read.
 */
export async function openArchive(archive: Blob, name: string): Promise<Member[]> {
  const tail = await view(archive, Math.max(0, archive.size - LONGEST_COMMENT - 22));
  let end = tail.byteLength - 22;
  while (end >= 0 && tail.getUint32(end, true) !== END) end--;
  if (end < 0) throw new UserError(texts.archive.none(name));
  const count = tail.getUint16(end + 10, true);
  const size = tail.getUint32(end + 12, true);
  const start = tail.getUint32(end + 16, true);
  if (count === 0xffff || size === ELSEWHERE || start === ELSEWHERE) {
    throw new UserError(texts.archive.zip64(name));
  }
  if (start + size > archive.size) throw damaged(name);
  return members(await view(archive, start, start + size), count, archive, name);
}

function members(directory: DataView, count: number, archive: Blob, name: string): Member[] {
  const found: Member[] = [];
  let at = 0;
  for (let i = 0; i < count; i++) {
    if (at + 46 > directory.byteLength || directory.getUint32(at, true) !== MEMBER) {
      throw damaged(name);
    }
    const flags = directory.getUint16(at + 8, true);
    const method = directory.getUint16(at + 10, true);
    const packed = directory.getUint32(at + 20, true);
    const bytes = directory.getUint32(at + 24, true);
    const length = directory.getUint16(at + 28, true);
    const rest = directory.getUint16(at + 30, true) + directory.getUint16(at + 32, true);
    const offset = directory.getUint32(at + 42, true);
    if (at + 46 + length > directory.byteLength) throw damaged(name);
    const text = new Uint8Array(directory.buffer, directory.byteOffset + at + 46, length);
    const written = nameOf(text, flags, name).replaceAll("\\", "/");
    const path = tidy(written);
    if ([packed, bytes, offset].includes(ELSEWHERE)) throw new UserError(texts.archive.zip64(name));
    if (flags & ENCRYPTED) throw new UserError(texts.archive.encrypted(name));
    if (!written.endsWith("/")) {
      const open = () =>
        unpack({ archive, name: texts.archive.inside(path, name), method, packed, bytes, offset });
      found.push({ path, bytes, open });
    }
    at += 46 + length + rest;
  }
  return found;
}

function nameOf(text: Uint8Array, flags: number, archive: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(text);
  } catch {
    // macOS and others write UTF-8 without the flag; what is none is in the code page
    if (flags & UTF8_NAME) throw damaged(archive);
    return Array.from(text, (byte) => CP437[byte - 128] ?? String.fromCharCode(byte)).join("");
  }
}

interface Place {
  archive: Blob;
  name: string;
  method: number;
  packed: number;
  bytes: number;
  offset: number;
}

async function unpack({ archive, name, method, packed, bytes, offset }: Place): Promise<Blob> {
  const head = await view(archive, offset, offset + 30);
  if (head.byteLength < 30 || head.getUint32(0, true) !== LOCAL) throw damaged(name);
  const start = offset + 30 + head.getUint16(26, true) + head.getUint16(28, true);
  const data = archive.slice(start, start + packed);
  if (bytes > MOST_BYTES) throw new UserError(texts.archive.largeFile(name));
  if (method === STORED) return data;
  if (method !== DEFLATED) throw new UserError(texts.archive.unknown(name));
  return inflate(data, bytes, name);
}

/** Stops as soon as there are more bytes than the directory says. */
async function inflate(data: Blob, bytes: number, name: string): Promise<Blob> {
  const parts: BlobPart[] = [];
  let size = 0;
  try {
    const reader = data.stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      size += value.byteLength;
      if (size > bytes) {
        await reader.cancel();
        throw damaged(name);
      }
      parts.push(value);
    }
  } catch {
    throw damaged(name);
  }
  if (size !== bytes) throw damaged(name);
  return new Blob(parts);
}

function damaged(name: string): UserError {
  return new UserError(texts.archive.damaged(name));
}

async function view(archive: Blob, start: number, end = archive.size): Promise<DataView> {
  return new DataView(await archive.slice(start, end).arrayBuffer());
}
