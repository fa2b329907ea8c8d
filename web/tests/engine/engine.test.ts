import { beforeAll, describe, expect, test } from "vitest";
import { Engine } from "../../src/engine/engine";
import { gradientNorm, Optimizer } from "../../src/engine/optimizer";
import { heapBytes } from "../../src/engine/session";
import { expectClose, expectRelative, fixture } from "./fixture";
import { openKit, startRuntime } from "./kits";
import { madeMasks, madePhotos } from "./made";

beforeAll(startRuntime);

describe.each(["last", "blocks", "parts"] as const)("the kit %s", (name) => {
  test("gives the losses, gradients and predictions of the Python engine", async () => {
    const kit = await openKit(name);
    const { manifest } = kit;
    const expected = fixture.steps[name];
    const engine = new Engine(kit, kit.parameters, manifest.task.classes.length);
    const heads = manifest.parameters.filter(({ group }) => group === "head");
    const rates = new Map(heads.map((spec) => [spec.name, 0.5]));
    const optimizer = new Optimizer("sgd", engine.parameters, { rates });
    const steps = expected.losses.length;
    for (let number = 0; number < steps; number++) {
      const start = await engine.prepare(madePhotos(manifest, number, manifest.batch));
      const labels = Array.from({ length: manifest.batch }, (_, i) => [
        (i * 3 + number) % manifest.task.classes.length,
      ]);
      const found = await engine.gradientsWith(start, labels, () => madeMasks(manifest));
      expectClose([found.loss], [expected.losses[number]], 1e-5);
      expect(found.correct).toBe(expected.correct[number]);
      expectClose([gradientNorm(found.values.values())], [expected.norms[number]], 1e-4);
      optimizer.step(found.values, 0.01);
    }
    const start = await engine.prepare(madePhotos(manifest, steps, 3));
    expectClose(await engine.logits(start), expected.logits, 1e-4);
    const embeddings = await engine.embed(start);
    const size = manifest.embeddings!;
    const some = Math.min(8, size);
    const first = [0, 1, 2].flatMap((i) => [...embeddings.subarray(i * size, i * size + some)]);
    expectClose(first, expected.embeddings, 1e-4);
    for (const [key, values] of Object.entries(expected.statistics as Record<string, number[]>)) {
      expectClose(engine.statistics.get(key)!.data.subarray(0, 4), values, 1e-4);
    }
    await engine.release();
    expect(heapBytes()).toBeGreaterThan(1 << 20);
    expect(heapBytes()).toBeLessThan(64 << 20);
  });
});

test("a calibrated frozen part gives the features of Python", async () => {
  const kit = await openKit("integers");
  expect(kit.manifest.quantization).toMatchObject({ activations: 8 });
  const { pixels, features } = fixture["integers"];
  const engine = new Engine(kit, kit.parameters, kit.manifest.task.classes.length);
  const found = Float32Array.from(await engine.prepare(Uint8Array.from(pixels)));
  const some = Array.from({ length: features.length }, (_, i) => found[5 * i]!);
  // An untrained network whose features are all but zero would prove nothing.
  expect(new Set(some).size).toBeGreaterThan(20);
  expectRelative(some, features, 1e-3);
  await engine.release();
});

test("the state of an engine is its own, and can be loaded", async () => {
  const kit = await openKit("last");
  const engine = new Engine(kit, kit.parameters, 10);
  const before = engine.copy();
  engine.parameters.get("classifier.bias")!.data.fill(7);
  expect(kit.parameters.get("classifier.bias")!.data).not.toContain(7);
  engine.load(before);
  expect(engine.copy()).toEqual(before);
});

test("a kit with other outputs than its manifest's ends in a sentence", async () => {
  const kit = await openKit("last");
  const manifest = { ...kit.manifest, features: [640] };
  const engine = new Engine({ ...kit, manifest }, kit.parameters, 10);
  await expect(engine.prepare(madePhotos(manifest, 0, 1))).rejects.toThrow(/another shape/);
});

test("a damaged graph ends in a sentence", async () => {
  const kit = await openKit("last");
  const graphs = { ...kit.graphs, predict: kit.graphs.predict.slice(0, 100) };
  const engine = new Engine({ ...kit, graphs }, kit.parameters, 10);
  await expect(engine.logits(new Float32Array(192))).rejects.toThrow(/predict.onnx cannot be/);
});
