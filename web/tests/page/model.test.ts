import { describe, expect, it } from "vitest";
import { thinned } from "../../src/page/train/chart";
import { confusedPairs } from "../../src/page/use/confusion";
import type { Known } from "../../src/contract";
import { sharesOf } from "../../src/page/use/attributes";
import { heading } from "../../src/page/use/bars";
import { inWords } from "../../src/page/use/mistakes";
import { answerOf } from "../../src/page/use/model";
import type { ModelRecord } from "../../src/storage/schema";
import { plan } from "../../src/page/versions";

const KNOWN = {} as Known;

function answer(probabilities: number[], described: boolean, unknown = false) {
  const prediction = { embedding: null, distance: null, unknown };
  const model = { task: "classification", known: described ? KNOWN : null } as const;
  return answerOf({ ...prediction, probabilities: Float32Array.from(probabilities) }, model);
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
    expect(answer([0.1, 0.7, 0.2], true).told).toEqual([1]);
    expect(answer([], true).told).toEqual([]);
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

describe("attributes", () => {
  const model = { task: "attributes", known: null, classes: ["hat", "smile"] } as ModelRecord;
  const told = (...probabilities: number[]) => {
    const prediction = { embedding: null, distance: null, unknown: false };
    const found = answerOf(
      { ...prediction, probabilities: Float32Array.from(probabilities) },
      model,
    );
    return heading(model, found);
  };
  it("are told one by one", () => {
    expect(told(0.9, 0.6)).toBe("hat, smile");
    expect(told(0.5, 0.6)).toBe("smile");
    expect(told(0.1, 0.2)).toBe("none of the attributes");
    expect(told()).toMatch(/no photo that this browser can open/);
  });
  it("have shares, unless there are none to divide by", () => {
    const shares = sharesOf([
      [5, 1],
      [2, 2],
    ]);
    expect(shares).toEqual({ present: 4, accuracy: 0.7, recall: 0.5, precision: 2 / 3 });
    expect(
      sharesOf([
        [3, 0],
        [0, 0],
      ]),
    ).toEqual({ present: 0, accuracy: 1, recall: NaN, precision: NaN });
  });
  it("are told wrong in words", () => {
    const mistake = { photo: 1, question: 1, label: 0, guess: 1, probability: 0.9 };
    expect(inWords(model, mistake)).toBe("not smile, taken for smile (90.0%)");
    const classes = { task: "classification", classes: ["cat", "dog"] } as const;
    const other = { ...mistake, question: 0 };
    expect(inWords({ ...classes, classes: [...classes.classes] }, other)).toBe(
      "cat, taken for dog (90.0%)",
    );
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
