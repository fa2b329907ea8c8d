import { describe, expect, it } from "vitest";
import { Distinct, SIDE, signatureOf } from "../../src/page/collect/distinct";
import { divide } from "../../src/page/train/division";
import type { PhotoRecord } from "../../src/storage/schema";

const classes = [
  { id: 5, name: "cats" },
  { id: 3, name: "dogs" },
];

function photos(count: number, facts: Partial<PhotoRecord> = {}, first = 1): PhotoRecord[] {
  return Array.from({ length: count }, (_, i) => {
    const id = first + i;
    return { id, name: `${id}.jpg`, owners: [5], part: null, recording: 0, ...facts };
  });
}

describe("the division", () => {
  it("holds a fifth of each class of ten photos out", () => {
    const run = divide("classification", classes, [
      ...photos(20),
      ...photos(9, { owners: [3] }, 100),
    ]);
    const held = run.filter((each) => each.split === "validation");
    expect(held.map((each) => each.label)).toEqual([[0], [0], [0], [0]]);
    expect(run).toHaveLength(29);
    expect(run.slice(20).every((each) => each.label[0] === 1)).toBe(true);
  });
  it("is the same for the same photos, whatever came after", () => {
    const before = divide("classification", classes, photos(10)).filter(
      (each) => each.split === "validation",
    );
    const after = divide("classification", classes, photos(15)).filter(
      (each) => each.split === "validation",
    );
    expect(before).toHaveLength(2);
    expect(after).toHaveLength(3);
    expect(divide("classification", classes, photos(10))).toEqual(
      divide("classification", classes, photos(10)),
    );
  });
  it("holds the end of each recording out", () => {
    const run = divide("classification", classes, [
      ...photos(10, { recording: 1 }),
      ...photos(10, { recording: 2 }, 50),
    ]);
    const held = run.filter((each) => each.split === "validation").map((each) => each.id);
    expect(held).toEqual([9, 10, 58, 59]);
  });
  it("is the user's own where there is one", () => {
    const run = divide("classification", classes, [
      ...photos(3, { part: "validation" }),
      ...photos(20, {}, 50),
    ]);
    expect(run.filter((each) => each.split === "validation").map((each) => each.id)).toEqual([
      1, 2, 3,
    ]);
  });
  it("is a fifth of photos that came to train on, where none came to validate", () => {
    const train = divide("classification", classes, photos(20, { part: "train" }));
    expect(train).toEqual(divide("classification", classes, photos(20)));
    expect(train.filter((each) => each.split === "validation")).toHaveLength(4);
  });
  it("is that of other classes, where only some are divided by the user", () => {
    const run = divide("classification", classes, [
      ...photos(3, { part: "train" }),
      ...photos(10, { owners: [3] }, 50),
    ]);
    const held = run.filter((each) => each.split === "validation");
    expect(held.map((each) => each.label)).toEqual([[1], [1]]);
  });
  it("holds a fifth of all photos with attributes out", () => {
    const both = [...photos(8, { owners: [5, 3] }), ...photos(12, { owners: [] }, 50)];
    const run = divide("attributes", classes, both);
    expect(run.map((each) => each.label).slice(7, 9)).toEqual([
      [1, 1],
      [0, 0],
    ]);
    expect(run.filter((each) => each.split === "validation")).toHaveLength(4);
    expect(divide("attributes", classes, photos(9)).every((e) => e.split === "train")).toBe(true);
  });
  it("holds some photos of each attribute out, however these were added", () => {
    const kinds = [[], [5, 3], [3]];
    const all = kinds.flatMap((owners, i) => photos(8, { owners }, 1 + 8 * i));
    const held = divide("attributes", classes, all).filter((each) => each.split === "validation");
    expect(new Set(held.map(({ label }) => label.join()))).toEqual(new Set(["0,0", "1,1", "0,1"]));
  });
});

describe("frames", () => {
  const noise = (seed: number) => {
    const pixels = new Uint8ClampedArray(SIDE * SIDE * 4);
    let state = seed;
    for (let i = 0; i < pixels.length; i++) {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      pixels[i] = state >>> 24;
    }
    return pixels;
  };
  it("count once, however bright they are", () => {
    const seen = new Distinct();
    const frame = noise(1).map((value) => value >> 1);
    const brighter = frame.map((value) => value + 20);
    expect(seen.accept(signatureOf(frame))).toBe(true);
    expect(seen.accept(signatureOf(frame))).toBe(false);
    expect(seen.accept(signatureOf(brighter))).toBe(false);
    expect(seen.accept(signatureOf(noise(2)))).toBe(true);
    expect(seen.accept(signatureOf(frame))).toBe(false);
  });
  it("may come again after many others", () => {
    const seen = new Distinct();
    for (let i = 0; i < 30; i++) expect(seen.accept(signatureOf(noise(i)))).toBe(true);
    expect(seen.accept(signatureOf(noise(0)))).toBe(true);
  });
});
