/** The bundled kits, and the runtime in Node, for tests. */
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Kit } from "../../src/contract";
import { setUpRuntime } from "../../src/engine/session";
import { readKit } from "../../src/formats/kit";

type Name = "last" | "blocks" | "frozen" | "whole" | "parts" | "integers" | "attributes";

/** A kit of the wheel, or one of the fixtures. */
export function openKit(name: Name): Promise<Kit> {
  const bundled = name === "last" || name === "blocks";
  const folder = bundled ? "../../../src/pocketune/kit/bundled" : "../fixtures";
  const path = new URL(`${folder}/${name}.zip`, import.meta.url);
  return readKit(new Uint8Array(readFileSync(path)), `${name}.zip`);
}

export function startRuntime(): void {
  const path = createRequire(import.meta.url).resolve(
    "onnxruntime-web/ort-wasm-simd-threaded.wasm",
  );
  setUpRuntime(new Uint8Array(readFileSync(path)), null, 1);
}
