/** Files that Python wrote; see tests/studio/make_fixtures.py. */
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { writeZip, openZip } from "../../src/formats/zip";

const place = new URL("../fixtures/formats/", import.meta.url);

export const fixture = (name: string): Uint8Array<ArrayBuffer> =>
  new Uint8Array(readFileSync(fileURLToPath(new URL(name, place))));

export const json = <T>(name: string): T =>
  JSON.parse(new TextDecoder().decode(fixture(name))) as T;

export interface Facts {
  hash: string;
  base: string;
  content: string;
  classes: string[];
  step: number;
  score: number;
  state: Record<string, number[]>;
  last: Record<string, number[]>;
  threshold: number;
  images: number[];
  logits: number[];
}

export const facts = (): Facts => json<Facts>("facts.json");

/** A .zip with one of its files changed, added, or (undefined) removed. */
export function changed(
  zip: Uint8Array,
  name: string,
  content: ((old: Uint8Array) => Uint8Array) | undefined,
): Uint8Array<ArrayBuffer> {
  const files = new Map<string, Uint8Array>();
  for (const [path, entry] of openZip(zip, "fixture")) files.set(path, entry.read());
  const path = [...files.keys()].find((each) => each.endsWith(name)) ?? name;
  if (content) files.set(path, content(files.get(path) ?? new Uint8Array()));
  else files.delete(path);
  return writeZip(files);
}

export const text = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);
export const bytes = (content: string): Uint8Array => new TextEncoder().encode(content);

/** Python's `assert_allclose` in one number. */
export function difference(one: ArrayLike<number>, other: ArrayLike<number>): number {
  if (one.length !== other.length) return Infinity;
  return Array.from(one).reduce((most, value, i) => Math.max(most, Math.abs(value - other[i]!)), 0);
}
