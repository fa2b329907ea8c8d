/** What the Python engine gives; see fixtures/make_engine.py. */
import { readFileSync } from "node:fs";
import { expect } from "vitest";

// The file is JSON of many shapes, which each test names where it reads them.
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type Given = Record<string, any>;

export const fixture: Given = JSON.parse(
  readFileSync(new URL("../fixtures/engine.json", import.meta.url), "utf8"),
);

/** Compares arrays; the tolerance is relative to the largest expected value, at least 1. */
export function expectClose(
  found: ArrayLike<number>,
  expected: ArrayLike<number>,
  tolerance: number,
): void {
  expect(found.length).toBe(expected.length);
  const scale = Math.max(1, ...Array.from(expected, Math.abs));
  const worst = Array.from(found, (value, i) => Math.abs(value - expected[i]!));
  expect(Math.max(0, ...worst)).toBeLessThanOrEqual(tolerance * scale);
}

/** Compares arrays by the norm of their difference, relative to that of the expected one. */
export function expectRelative(found: number[], expected: number[], tolerance: number): void {
  expect(found.length).toBe(expected.length);
  const off = Math.hypot(...found.map((value, i) => value - expected[i]!));
  expect(off / Math.hypot(...expected)).toBeLessThanOrEqual(tolerance);
}
