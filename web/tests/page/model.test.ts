import { describe, expect, it } from "vitest";
import { thinned } from "../../src/page/train/chart";
import { confusedPairs } from "../../src/page/use/confusion";
import { answerOf } from "../../src/page/use/model";
import { plan } from "../../src/page/versions";

function answer(probabilities: number[], described: boolean, unknown = false) {
  const values = Float32Array.from(probabilities);
  return answerOf({ probabilities: values, embedding: null, distance: null, unknown }, described);
}

it("the classes that are confused most come first, without what is right", () => {
  const confusion = [
    [9, 0, 1],
    [3, 5, 0],
    [0, 2, 8],
  ];
  expect(confusedPairs(confusion)).toEqual([
    { count: 3, actual: 1, guess: 0 },
    { count: 2, actual: 2, guess: 1 },
    { count: 1, actual: 0, guess: 2 },
  ]);
});

describe("an answer", () => {
  it("is the likeliest class", () => {
    expect(answer([0.1, 0.7, 0.2], true).guess).toBe(1);
    expect(answer([], true).guess).toBe(-1);
  });
  it("is none of these by the distance, where the run describes its classes", () => {
    expect(answer([0.4, 0.3, 0.3], true).unknown).toBe(false);
    expect(answer([0.9, 0.1], true, true).unknown).toBe(true);
  });
  it("is none of these by the probability, where it does not", () => {
    expect(answer([0.4, 0.3, 0.3], false).unknown).toBe(true);
    expect(answer([0.6, 0.4], false).unknown).toBe(false);
    expect(answer([], false).unknown).toBe(false);
  });
});

describe("a curve", () => {
  it("of few points is drawn as it is", () => {
    expect(thinned([[1, 2]], 2)).toEqual([[1, 2]]);
  });
  it("of many points is drawn by means of neighbors", () => {
    const points = Array.from({ length: 1000 }, (_, i) => [i, i % 2] as const);
    const few = thinned(points, 100);
    expect(few).toHaveLength(100);
    expect(few[0]).toEqual([4.5, 0.5]);
    expect(few.at(-1)).toEqual([994.5, 0.5]);
  });
});

describe("a new version of the site", () => {
  const now = { version: "2", files: { "main.js": "b", "kit.zip": "k", "new.js": "n" } };
  it("is fetched as a whole the first time", () => {
    expect(plan(undefined, now)).toEqual({ reused: [], fetched: ["main.js", "kit.zip", "new.js"] });
  });
  it("takes over what has not changed", () => {
    const before = { version: "1", files: { "main.js": "a", "kit.zip": "k", "old.js": "o" } };
    expect(plan(before, now)).toEqual({ reused: ["kit.zip"], fetched: ["main.js", "new.js"] });
  });
});
