/**
 * The page's side of tests in Python: opens runs and deltas of the command line, predicts with them,
 * and writes them again; and takes photos in and along. `node exchange.mjs FOLDER` for a folder with
 * `jobs.json`; see tests/studio/test_exchange.py.
 */
import "fake-indexeddb/auto";
import { readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import * as ort from "onnxruntime-web";
import type { Kit } from "../src/contract";
import { taskOf } from "../src/engine/tasks";
import { readDelta, writeDelta } from "../src/formats/delta";
import { writeModel } from "../src/formats/export";
import { readModel, trainedOf, writeRun, type Trained } from "../src/formats/run";
import { openArchive } from "../src/page/collect/archive";
import { findLabels } from "../src/page/collect/labels/find";
import type { Layout } from "../src/page/collect/labels/layout";
import { readTable } from "../src/page/collect/labels/tables";
import { Project } from "../src/page/project";
import { photosFile } from "../src/page/take/photos";
import { Store } from "../src/storage/store";
import { about, resultOf } from "./formats/result";

ort.env.wasm.numThreads = 1;
Object.defineProperty(globalThis, "navigator", { value: {} });

interface Jobs {
  runs: string[];
  photos: string[];
}

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

async function layoutOf(archive: Blob): Promise<{ layout: Layout; open: Map<string, Blob> }> {
  const members = await openArchive(archive, "photos.zip");
  const opened = members.map(async ({ path, open }) => [path, await open()] as const);
  const files = new Map(await Promise.all(opened));
  const read = (path: string) => readTable(path, files.get(path)!);
  return { layout: (await findLabels([...files.keys()], read))!, open: files };
}

/** Takes the photos of a .zip in, and packs them as they are taken along. */
async function repacked(archive: Blob, name: string): Promise<Blob> {
  const { layout, open } = await layoutOf(archive);
  const project = await Project.open(await Store.open(name));
  await project.setTask(layout.task);
  const made = await project.classesNamed(layout.classes, project.unused);
  const owners = new Map(layout.classes.map((label, i) => [label, made[i]!]));
  await project.add(
    layout.labeled.map(({ path, labels, part }) => {
      const [blob, of] = [open.get(path)!, labels.map((label) => owners.get(label)!)];
      return { name: basename(path), owners: of, part, recording: 0, blob, thumbnail: blob };
    }),
  );
  return new Blob(await photosFile(project));
}

async function main(folder: string): Promise<void> {
  const read = (name: string) => new Uint8Array(readFileSync(join(folder, name)));
  const write = (name: string, content: string | Uint8Array) => {
    writeFileSync(join(folder, name), content);
  };
  const jobs = JSON.parse(readFileSync(join(folder, "jobs.json"), "utf8")) as Jobs;
  for (const name of jobs.photos) {
    const packed = await repacked(new Blob([read(`${name}.zip`)]), name);
    write(`${name}.page.zip`, new Uint8Array(await packed.arrayBuffer()));
    const { labeled } = (await layoutOf(packed)).layout;
    const heldOut = labeled.filter(({ part }) => part === "validation");
    write(`${name}.json`, JSON.stringify(heldOut.map(({ path }) => path)));
  }
  for (const name of jobs.runs) {
    const model = await readModel(read(`${name}.zip`));
    const { kit } = model;
    const pixels = read(`${name}.images`);
    const delta = await readDelta(read(`${name}.safetensors`), () => [kit]);
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
