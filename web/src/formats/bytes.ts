/** Bytes and values: joining, hashing, and words for them in messages. */
import { sha256 as digest } from "@noble/hashes/sha2.js";

/** Values one behind the other, in a new array of a kind. */
export function joined<T extends Uint8Array | Float32Array>(
  parts: ArrayLike<number>[],
  Kind: new (length: number) => T,
): T {
  const all = new Kind(parts.reduce((sum, part) => sum + part.length, 0));
  let place = 0;
  for (const part of parts) {
    all.set(part, place);
    place += part.length;
  }
  return all;
}

/** SHA-256 in hexadecimal. */
export async function sha256(...parts: Uint8Array[]): Promise<string> {
  const bytes = parts.length === 1 ? parts[0]! : joined(parts, Uint8Array);
  // A page of plain http has no `subtle`, whatever its type says.
  const subtle = crypto.subtle as SubtleCrypto | undefined;
  const found = subtle
    ? new Uint8Array(await subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>))
    : digest(bytes);
  return Array.from(found, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);

/** A number with commas, as messages of Python have it. */
export const grouped = (value: number): string => value.toLocaleString("en-US");

/** The bytes of float32 values, little-endian as in files; every browser's machine is. */
export function floatBytes(values: Float32Array): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}

/** A shape as Python prints it: `()`, `(3,)`, `(3, 6)`. */
export function shapeText(shape: readonly number[]): string {
  return shape.length === 1 ? `(${shape[0]},)` : `(${shape.join(", ")})`;
}

export const product = (shape: readonly number[]): number => shape.reduce((all, n) => all * n, 1);
