/**
 * The page's side of tests in Python: opens runs and deltas of the command line, predicts with them,
 * and writes them again. `node exchange.mjs FOLDER` for a folder with `jobs.json`; see
 * tests/studio/test_exchange.py.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as ort from "onnxruntime-web";
import type { Kit } from "../src/contract";
import { taskOf } from "../src/engine/tasks";
import { readDelta, writeDelta } from "../src/formats/delta";
import { writeModel } from "../src/formats/export";
import { readModel, trainedOf, writeRun, type Trained } from "../src/formats/run";
import { about, resultOf } from "./formats/result";

ort.env.wasm.numThreads = 1;

async function predict(
  kit: Kit,
  { classes, parameters }: Trained,
  pixels: Uint8Array,
): Promise<number[]> {
  const { size } = kit.manifest;
  const images = new ort.Tensor("uint8", pixels, [
    pixels.length / (3 * size * size),
    size,
    size,
    3,
  ]);
  let start: Record<string, ort.Tensor> = { images };
  if (kit.graphs.features) {
    const session = await ort.InferenceSession.create(kit.graphs.features);
    start = { features: (await session.run(start))["features"]! };
  }
  const session = await ort.InferenceSession.create(kit.graphs.predict);
  const feeds = { ...start };
  for (const name of session.inputNames) {
    const value = parameters.get(name);
    if (value) feeds[name] = new ort.Tensor("float32", value.data, value.shape);
  }
  const { logits } = await session.run(feeds, ["logits"]);
  if (logits!.dims[1] !== classes.length) throw new Error("logits are not of the classes");
  const task = taskOf(kit.manifest.task.name, classes.length);
  const all = logits!.data as Float32Array;
  const rows = Array.from({ length: logits!.dims[0]! }, (_, i) =>
    task.probabilities(all.subarray(i * classes.length, (i + 1) * classes.length)),
  );
  return rows.flatMap((row) => [...row]);
}

async function main(folder: string): Promise<void> {
  const read = (name: string) => new Uint8Array(readFileSync(join(folder, name)));
  const write = (name: string, content: string | Uint8Array) => {
    writeFileSync(join(folder, name), content);
  };
  for (const name of JSON.parse(readFileSync(join(folder, "jobs.json"), "utf8")) as string[]) {
    const model = await readModel(read(`${name}.zip`));
    const { kit } = model;
    const pixels = read(`${name}.images`);
    const delta = await readDelta(read(`${name}.safetensors`), [kit]);
    write(
      `${name}.json`,
      JSON.stringify({
        classes: model.classes,
        run: await predict(kit, model, pixels),
        delta: await predict(kit, delta, pixels),
      }),
    );
    const result = resultOf(model);
    write(`${name}.page.zip`, await writeRun(kit, result, about));
    write(`${name}.page.safetensors`, await writeDelta(kit, trainedOf(result)));
    write(`${name}.page.onnx`, writeModel(kit, trainedOf(result)));
  }
}

await main(process.argv[2]!);
