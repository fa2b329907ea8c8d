/** The bundled kits, and the runtime in Node, for tests. */
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { unzipSync } from "fflate";
import type { Kit, Manifest, State } from "../../src/contract";
import { setUpRuntime } from "../../src/engine/session";

/** A kit of the wheel, or one of the fixtures; as formats/kit.ts reads it, without its checks. */
export function openKit(name: "last" | "blocks" | "frozen" | "whole"): Kit {
  const bundled = name === "last" || name === "blocks";
  const folder = bundled ? "../../../src/pocketune/kit/bundled" : "../fixtures";
  const path = new URL(`${folder}/${name}.zip`, import.meta.url);
  const files = new Map(Object.entries(unzipSync(new Uint8Array(readFileSync(path)))));
  const text = new TextDecoder().decode(files.get("manifest.json"));
  const manifest = JSON.parse(text) as Manifest;
  const graph = (graph: string) => files.get(`${graph}.onnx`)!;
  return {
    manifest,
    graphs: {
      step: graph("step"),
      predict: graph("predict"),
      ...(manifest.features && { features: graph("features") }),
    },
    parameters: readTensors(files.get("parameters.safetensors")!),
    hash: name,
    files,
  };
}

function readTensors(bytes: Uint8Array): State {
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  const length = Number(view.getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)));
  delete header.__metadata__;
  return new Map(
    Object.entries(header as Record<string, { shape: number[]; data_offsets: number[] }>).map(
      ([
        name,
        {
          shape,
          data_offsets: [from, to],
        },
      ]) => {
        const data = bytes.slice(8 + length + from!, 8 + length + to!);
        return [name, { shape, data: new Float32Array(data.buffer) }];
      },
    ),
  );
}

export function startRuntime(): void {
  const path = createRequire(import.meta.url).resolve(
    "onnxruntime-web/ort-wasm-simd-threaded.wasm",
  );
  setUpRuntime(new Uint8Array(readFileSync(path)), null, 1);
}
