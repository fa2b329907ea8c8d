import { createHash } from "node:crypto";
import { afterEach, expect, it, vi } from "vitest";
import { sha256 } from "../../src/formats/bytes";

afterEach(() => void vi.unstubAllGlobals());

const expected = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");

it("is computed by the browser, or without it on a page of plain http", async () => {
  const bytes = Uint8Array.from({ length: 1000 }, (_, i) => (i * i + 7) % 251);
  expect(await sha256(bytes)).toBe(expected(bytes));
  vi.stubGlobal("crypto", {});
  for (let length = 0; length < 200; length++) {
    const part = bytes.subarray(length, 2 * length);
    expect(await sha256(part)).toBe(expected(part));
  }
  expect(await sha256(bytes.subarray(0, 9), bytes.subarray(9))).toBe(expected(bytes));
});
