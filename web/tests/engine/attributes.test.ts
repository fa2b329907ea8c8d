/** Kits of attributes: steps and scores against Python, and whole runs. */
import { beforeAll, describe, expect, test } from "vitest";
import type { PhotoEntry } from "../../src/contract";
import { Engine } from "../../src/engine/engine";
import { Metric } from "../../src/engine/metric";
import { Optimizer } from "../../src/engine/optimizer";
import { predictPixels } from "../../src/engine/predict";
import { taskOf } from "../../src/engine/tasks";
import { tryStep } from "../../src/engine/trial";
import { expectClose, fixture } from "./fixture";
import { openKit, startRuntime } from "./kits";
import { madeMasks, madePhotos } from "./made";
import { MemoryStore, type Options, runSmall } from "./runs";

beforeAll(startRuntime);

test("steps, predictions and scores are those of Python", async () => {
  const kit = await openKit("attributes");
  const { manifest } = kit;
  const given = fixture["attributeSteps"];
  const engine = new Engine(kit, kit.parameters, manifest.task.classes.length);
  const optimizer = new Optimizer("sgd", engine.parameters, {});
  const masks = madeMasks(manifest);
  for (let number = 0; number < given.losses.length; number++) {
    const start = await engine.prepare(madePhotos(manifest, number, manifest.batch));
    const found = await engine.gradientsWith(start, given.labels[number], () => masks);
    expectClose([found.loss], [given.losses[number]], 1e-5);
    expectClose([found.correct], [given.correct[number]], 1e-5);
    optimizer.step(found.values, 0.5);
  }
  const pixels = madePhotos(manifest, given.losses.length, manifest.batch);
  const logits = await engine.logits(await engine.prepare(pixels));
  expectClose(logits, given.logits, 1e-4);
  const metric = new Metric(engine.task);
  metric.update(logits, given.labels[0]);
  expect(metric.score.value).toBeCloseTo(given.accuracy, 9);
  expect(metric.score.loss).toBeCloseTo(given.loss, 4);
  const first = pixels.subarray(0, pixels.length / manifest.batch);
  const { probabilities, unknown } = await predictPixels(engine, null, first);
  expectClose(probabilities, given.probabilities.slice(0, 3), 1e-4);
  expect(unknown).toBe(false);
  await engine.release();
});

test("logits far from 0 have finite losses and probabilities", () => {
  const task = taskOf("attributes", 2);
  const logits = Float32Array.of(1000, -1000);
  expect(task.loss(logits, 0, [1, 0])).toBe(0);
  expect(task.loss(logits, 0, [0, 0])).toBe(500);
  expect([...task.probabilities(logits)]).toEqual([1, 0]);
  expect(task.answers(logits, 0)).toEqual([1, 0]);
});

test("a kit is tried on a GPU as any other", async () => {
  const { loss, gradients } = await tryStep(await openKit("attributes"));
  expect(loss).toBeGreaterThan(0);
  expect([...gradients.keys()]).toContain("fc.weight");
});

/** Every combination of three colors in turn; every fourth photo validates. */
const photos: PhotoEntry[] = Array.from({ length: 64 }, (_, i) => ({
  id: 100 + i,
  name: `${i}.png`,
  label: [i & 1, (i >> 1) & 1, (i >> 2) & 1],
  split: (i >> 3) % 4 === 3 ? "validation" : "train",
}));
const options: Options = {
  kitName: "attributes",
  photos,
  settings: { optimizer: "adam", seed: 1, threads: 1, epochs: 3 },
};

describe("a run", () => {
  test("starts from a ridge regression, and knows how well it tells each attribute", async () => {
    // A held-out photo that is red is said not to be.
    const odd = photos.map((p) => (p.id === 125 ? { ...p, label: [0, ...p.label.slice(1)] } : p));
    const store = new MemoryStore(photos);
    const { result, events } = await runSmall({ ...options, photos: odd, store });
    const { counters, confusion, mistakes, known, task } = result!;
    expect([task, counters.head, known]).toEqual(["attributes", "ridge", null]);
    expect(counters).toMatchObject({ step: 36, headImages: 48 });
    expect(counters.best!.value).toBeGreaterThan(0.9);
    expect(counters.best!.value).toBeGreaterThanOrEqual(counters.start!.value);
    expect(confusion.map((each) => each.flat().reduce((a, b) => a + b))).toEqual([16, 16, 16]);
    const right = confusion.reduce((all, counts) => all + counts[0]![0]! + counts[1]![1]!, 0);
    expect(right / 48).toBeCloseTo(counters.best!.value, 9);
    expect(mistakes.length).toBe(48 - right);
    const mistake = mistakes.find(({ photo }) => photo === 125)!;
    expect(mistake).toMatchObject({ question: 0, label: 0, guess: 1 });
    expect(mistake.probability).toBeGreaterThan(0.5);
    const accuracies = events.flatMap((e) => (e.kind === "epoch" ? [e.trainingAccuracy] : []));
    for (const value of accuracies.slice(1)) expect(value).toBeLessThanOrEqual(1);
  });

  test("goes on from a checkpoint with the same bits", async () => {
    const whole = await runSmall({ ...options, checkpointSeconds: 0 });
    const resume = whole.checkpoints[10]!;
    const resumed = await runSmall({ ...options, resume });
    expect(resumed.result!.parameters).toEqual(whole.result!.parameters);
  });

  test("of a single attribute is one, too", async () => {
    const single = photos.map((photo) => ({ ...photo, label: photo.label.slice(0, 1) }));
    const read: Options["read"] = async (blob, _choose, size) => {
      const { label } = JSON.parse(await (blob as Blob).text()) as PhotoEntry;
      return new Uint8Array(size * size * 3).fill(label[0] ? 200 : 50);
    };
    const { result } = await runSmall({ ...options, photos: single, classes: ["red"], read });
    expect(result!.counters.best!.value).toBe(1);
    expect(result!.confusion).toEqual([
      [
        [8, 0],
        [0, 8],
      ],
    ]);
  });

  test("of photos that all have the same is refused", async () => {
    const same = photos.map((photo) => ({ ...photo, label: [1, 0, 1] }));
    await expect(runSmall({ ...options, photos: same })).rejects.toThrow(
      "all have the same attributes",
    );
  });
});
