/** The wire format of protobuf (protobuf.dev/programming-guides/encoding), read and written. */
import { joined, utf8 } from "./bytes";

/** A field: a whole number, or the bytes of a text, message, list or fixed number. */
export interface Field {
  number: number;
  wire: 0 | 1 | 2 | 5;
  value: bigint | Uint8Array;
}

/** The fields of a message, in order. Throws Error if the bytes are damaged. */
export function* readFields(data: Uint8Array): Generator<Field> {
  let place = 0;
  const varint = (): bigint => {
    const [value, end] = readVarint(data, place);
    place = end;
    return value;
  };
  while (place < data.length) {
    const tag = varint();
    const [number, wire] = [Number(tag >> 3n), Number(tag & 7n)];
    if (wire === 0) {
      yield { number, wire, value: BigInt.asIntN(64, varint()) };
      continue;
    }
    let size: number;
    if (wire === 2) size = Number(varint());
    else if (wire === 1) size = 8;
    else if (wire === 5) size = 4;
    else throw new Error(`it has a field of the unknown kind ${wire}`);
    if (place + size > data.length) throw new Error("it ends in the middle of a field");
    yield { number, wire, value: data.subarray(place, place + size) };
    place += size;
  }
}

/** The numbers of a packed list. */
export function* readVarints(data: Uint8Array): Generator<bigint> {
  let place = 0;
  while (place < data.length) {
    const [value, end] = readVarint(data, place);
    yield value;
    place = end;
  }
}

/** A number of up to 64 bits, 7 in each byte, and the place behind it. */
function readVarint(data: Uint8Array, start: number): [bigint, number] {
  let place = start;
  let low = 0;
  // Up to 28 bits without big numbers, which are slow: nearly all numbers of a file.
  for (let shift = 0; shift < 28 && place < data.length; shift += 7) {
    const byte = data[place++]!;
    low |= (byte & 127) << shift;
    if (byte < 128) return [BigInt(low), place];
  }
  let value = BigInt(low);
  for (let shift = 28n; shift < 64n && place < data.length; shift += 7n) {
    const byte = data[place++]!;
    value |= BigInt(byte & 127) << shift;
    if (byte < 128) return [BigInt.asUintN(64, value), place];
  }
  throw new Error("it ends in the middle of a number");
}

/** The bytes of a field as they are written. */
export function writeField({ number, wire, value }: Field): Uint8Array[] {
  const tag = varintBytes(BigInt((number << 3) | wire));
  if (typeof value === "bigint") return [tag, varintBytes(BigInt.asUintN(64, value))];
  return wire === 2 ? [tag, varintBytes(BigInt(value.length)), value] : [tag, value];
}

/** The bytes of a message. */
export function writeFields(fields: Iterable<Field>): Uint8Array {
  const parts: Uint8Array[] = [];
  for (const field of fields) parts.push(...writeField(field));
  return joined(parts, Uint8Array);
}

export const numberField = (number: number, value: number): Field => ({
  number,
  wire: 0,
  value: BigInt(value),
});

export const bytesField = (number: number, value: Uint8Array): Field => ({
  number,
  wire: 2,
  value,
});

export const textField = (number: number, text: string): Field => bytesField(number, utf8(text));

export const messageField = (number: number, fields: Iterable<Field>): Field =>
  bytesField(number, writeFields(fields));

function varintBytes(value: bigint): Uint8Array {
  const bytes: number[] = [];
  do {
    const rest = value >> 7n;
    bytes.push(Number(value & 127n) | (rest ? 128 : 0));
    value = rest;
  } while (value);
  return Uint8Array.from(bytes);
}
