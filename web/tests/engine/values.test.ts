/** Codes, known classes, resizing, views and defaults against Python. */
import { describe, expect, test } from "vitest";
import type { Manifest } from "../../src/contract";
import { Code } from "../../src/engine/code";
import { defaultEpochs, defaultPatience, resolve } from "../../src/engine/defaults";
import { distancesOf, fitKnown } from "../../src/engine/known";
import { Random } from "../../src/engine/random";
import { mirror, resize } from "../../src/engine/resize";
import { centerView, randomView } from "../../src/engine/views";
import { expectClose, fixture, type Given } from "./fixture";

describe.each([0, 1, 2])("features in the code number %i", (number) => {
  const { bits, values, bytes, read } = fixture.codes[number];
  const code = new Code(values.length, bits);

  test("are the bytes of Python", () => {
    const written = code.encode(Float32Array.from(values));
    expect(Buffer.from(written).toString("hex")).toBe(bytes);
    expect(written.length).toBe(code.size);
  });

  test("are read as Python reads them, wherever they begin", () => {
    const shifted = new Uint8Array(Buffer.from(`00${bytes}`, "hex")).subarray(1);
    const found = new Float32Array(values.length + 1);
    code.decode(shifted, found, 1);
    expect([...found.subarray(1)]).toEqual(Array.from(Float32Array.from(read)));
  });
});

test.each(fixture.known as Given[])("known classes of $size values are Python's", (given) => {
  const { size, rows, labels, heldOut, ...expected } = given;
  const known = fitKnown(
    { size, rows: Float32Array.from(rows), labels },
    Float32Array.from(heldOut),
  );
  expectClose(known.gains.data, expected.gains, 1e-5);
  expectClose(known.means.data, expected.means, 1e-5);
  expect(known.threshold.data[0]).toBeCloseTo(expected.threshold, 5);
  expectClose(distancesOf(known, Float32Array.from(expected.strange)), expected.distances, 1e-5);
});

test.each(fixture.resize as Given[])("the part $box is resized as Pillow does", (given) => {
  const { pixels, box, found } = given as { pixels: number[]; box: number[]; found: number[] };
  const rgba = new Uint8Array(23 * 17 * 4);
  for (let i = 0; i < 23 * 17; i++) rgba.set(pixels.slice(3 * i, 3 * i + 3), 4 * i);
  const [left, top, width, height] = box as [number, number, number, number];
  expect([...resize(rgba, 23, 17, { left, top, width, height }, 6)]).toEqual(found);
});

test("mirroring twice gives the same pixels", () => {
  const pixels = Uint8Array.from({ length: 27 }, (_, i) => i);
  const turned = pixels.slice();
  mirror(turned, 3);
  expect([...turned.subarray(0, 9)]).toEqual([6, 7, 8, 3, 4, 5, 0, 1, 2]);
  mirror(turned, 3);
  expect(turned).toEqual(pixels);
});

describe("views", () => {
  test.each(fixture.center)("the middle of %i x %i is Python's", (...given) => {
    const [width, height, size, ...box] = given as number[];
    expectClose(Object.values(centerView(width!, height!, size!).box), box, 1e-12);
  });

  test.each([
    [40, 30],
    [3, 500],
    [1, 1],
  ])("crops of %i x %i lie in the photo", (width, height) => {
    for (let i = 0; i < 200; i++) {
      const { box } = randomView(width, height, new Random(0, 2, i));
      expect(Math.min(box.left, box.top)).toBeGreaterThanOrEqual(0);
      expect(box.left + box.width).toBeLessThanOrEqual(width);
      expect(box.top + box.height).toBeLessThanOrEqual(height);
      expect(Math.min(box.width, box.height)).toBeGreaterThan(0);
    }
  });
});

describe("random streams", () => {
  test("are the same for the same numbers, and differ otherwise", () => {
    const first = (...numbers: [number, number, ...number[]]) => new Random(...numbers).uniform();
    expect(first(1, 2, 3)).toBe(first(1, 2, 3));
    const all = [first(1, 2, 3), first(1, 2, 4), first(1, 3, 3), first(2, 2, 3), first(1, 2)];
    expect(new Set([...all, first(1, 2, 0), first(1, 2, 2 ** 33)]).size).toBe(7);
  });

  test("have the mean and variance of their distribution", () => {
    const random = new Random(0, 0);
    const moments = (draw: () => number) => {
      const values = Array.from({ length: 20_000 }, draw);
      const mean = values.reduce((a, b) => a + b) / values.length;
      return [mean, values.reduce((a, b) => a + (b - mean) ** 2, 0) / values.length];
    };
    expectClose(
      moments(() => random.uniform()),
      [0.5, 1 / 12],
      0.02,
    );
    expectClose(
      moments(() => random.normal()),
      [0, 1],
      0.04,
    );
  });

  test("permute all numbers", () => {
    const order = new Random(5, 1).permutation(100);
    expect([...order].sort((a, b) => a - b)).toEqual(Array.from({ length: 100 }, (_, i) => i));
    expect([...order]).not.toEqual([...order].sort((a, b) => a - b));
  });
});

describe("defaults", () => {
  test.each(fixture.defaults.epochs)("%i steps an epoch make %i epochs", (...given) => {
    const [steps, epochs] = given as number[];
    expect(defaultEpochs(steps!)).toBe(epochs);
  });

  test.each(fixture.defaults.patience)("%i epochs, %i photos: patience %i", (...given) => {
    const [epochs, photos, patience] = given as number[];
    expect(defaultPatience(epochs!, photos!)).toBe(patience);
  });

  test.each(fixture.defaults.rates)("the rates of %s for %i images", (...given) => {
    const [optimizer, batch, ...rates] = given as ["adam" | "sgd", number, ...number[]];
    const found = resolved({ batch }, { optimizer, seed: 0, threads: 1 });
    const { lr, bias_lr, side_lr, decode_lr, head_lr } = found;
    expectClose([lr, bias_lr, side_lr, decode_lr, head_lr], rates, 1e-12);
  });

  test("a given rate holds for all but the classifier's own", () => {
    const found = resolved({}, { optimizer: "adam", seed: 0, threads: 1, lr: 0.1, headLr: 0.2 });
    expect([found.lr, found.bias_lr, found.head_lr]).toEqual([0.1, 0.1, 0.2]);
  });

  test("features are kept from eight epochs on, if there are any", () => {
    const settings = { optimizer: "adam", seed: 0, threads: 1 } as const;
    expect(resolved({}, { ...settings, epochs: 8 }).draws).toBe(4);
    expect(resolved({}, { ...settings, epochs: 7 }).cache).toBe("off");
    expect(resolved({ features: null }, { ...settings, epochs: 8 }).cache).toBe("off");
  });

  test("few photos are learned at lower rates", () => {
    const settings = { optimizer: "adam", seed: 0, threads: 1 } as const;
    const [many, few] = [200, 50].map((training) => resolved({}, settings, 10, training));
    expect(many).toEqual(resolved({}, settings));
    expect(few).toMatchObject({ lr: many!.lr / 2, head_lr: many!.head_lr });
    expect(resolved({}, { ...settings, lr: 0.01 }, 10, 50).lr).toBe(0.01);
  });

  test("without validation photos, the classifier of the photos is the result", () => {
    const settings = { optimizer: "adam", seed: 0, threads: 1 } as const;
    expect(resolved({}, settings, 0).epochs).toBe(0);
    expect(resolved({}, { ...settings, epochs: 3 }, 0).epochs).toBe(3);
  });
});

function resolved(
  manifest: Partial<Manifest>,
  settings: Parameters<typeof resolve>[0],
  validation = 10,
  training = 800,
) {
  const task = { name: "classification", classes: [], head: ["w", "b"] };
  const whole = { batch: 8, features: [4], embeddings: 4, task, ...manifest } as Manifest;
  const photos = { training, stepsPerEpoch: 100, validation, imbalance: 1 };
  return resolve(settings, whole, photos);
}
