/** Steps of a kit, one at a time; see bench.ts. */
import type { Label } from "../src/contract";
import { Engine } from "../src/engine/engine";
import { Optimizer } from "../src/engine/optimizer";
import { Random } from "../src/engine/random";
import { heapBytes, setUpRuntime } from "../src/engine/session";
import { readKit } from "../src/formats/kit";

let engine: Engine;
let optimizer: Optimizer;
let pixels: Uint8Array;
let labels: Label[];

self.onmessage = async ({ data }: MessageEvent<{ kit: string; threads: number } | "step">) => {
  if (data === "step") self.postMessage(await step());
  else self.postMessage(await open(data.kit, data.threads));
};

async function open(address: string, threads: number): Promise<number> {
  const wasm = await fetch("ort-wasm-simd-threaded.wasm.gz");
  const unzipped = wasm.body!.pipeThrough(new DecompressionStream("gzip"));
  const bytes = new Uint8Array(await new Response(unzipped).arrayBuffer());
  setUpRuntime(bytes, new URL("ort-wasm-simd-threaded.mjs", location.href).href, threads);
  const kit = await readKit(new Uint8Array(await (await fetch(address)).arrayBuffer()));
  const { manifest } = kit;
  engine = new Engine(kit, kit.parameters, manifest.task.classes.length);
  optimizer = new Optimizer("adam", engine.parameters);
  const random = new Random(0, 0);
  pixels = new Uint8Array(manifest.batch * manifest.size ** 2 * 3).map(() => random.below(256));
  labels = Array.from({ length: manifest.batch }, (_, i) => [i % manifest.task.classes.length]);
  // A validation, too: its graph is opened in turn with the step's.
  await step();
  await engine.logits(await engine.prepare(pixels));
  await step();
  return heapBytes();
}

/** Milliseconds of the frozen part and of all else, and bytes of the heap. */
async function step(): Promise<[number, number, number]> {
  const began = performance.now();
  const start = await engine.prepare(pixels);
  const middle = performance.now();
  const { values } = await engine.gradients(start, labels, new Random(0, 1));
  optimizer.step(values, 1e-4);
  return [middle - began, performance.now() - middle, heapBytes()];
}
