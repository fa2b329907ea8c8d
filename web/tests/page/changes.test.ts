import { expect, it } from "vitest";
import type { Split } from "../../src/contract";
import { texts } from "../../src/page/texts";
import { changesSince } from "../../src/page/train/changes";

const part = { name: "a.jpg", part: null, recording: 0 };
const split: Split = "train";
const CLASSES = ["red", "green", "blue"].map((name, i) => ({ id: i + 1, name }));
const project = (classes: typeof CLASSES, owners: (number[] | null)[]) => ({
  classes,
  all: () => owners.flatMap((each, id) => (each ? [{ id, owners: each, ...part }] : [])),
});
const run = (labels: number[][], classes = ["red", "green"]) => ({
  classes,
  photos: labels.map((label, id) => ({ id, name: "a.jpg", label, split })),
});
const NONE = { gone: [], deleted: 0, relabeled: 0, added: 0 };

it("nothing has changed, and nothing is said of it", () => {
  const found = changesSince(run([[0], [1]]), project(CLASSES, [[1], [2]]));
  expect(found).toEqual(NONE);
  expect(texts.changedSince(found)).toBe("");
});

it("photos are deleted, moved and added", () => {
  const found = changesSince(
    run([[0], [1], [1], [0]]),
    project(CLASSES, [[1], null, [1], [3], [2]]),
  );
  expect(found).toEqual({ ...NONE, deleted: 1, relabeled: 2, added: 1 });
});

it("a class is renamed, and its photos are its own as before", () => {
  const renamed = [{ id: 1, name: "crimson" }, ...CLASSES.slice(1)];
  const found = changesSince(run([[0], [1]]), project(renamed, [[1], [2]]));
  expect(found).toEqual({ ...NONE, gone: ["red"] });
  expect(texts.changedSince(found)).toMatch(/^Since it began, “red” was renamed or deleted. It /);
});

it("classes have changed their names with each other", () => {
  const changed = [
    { id: 1, name: "green" },
    { id: 2, name: "red" },
  ];
  expect(changesSince(run([[0], [1]]), project(changed, [[1], [2]])).relabeled).toBe(2);
});

it("attributes are given and taken", () => {
  const labels = [
    [1, 1],
    [0, 1],
    [0, 0],
  ];
  expect(changesSince(run(labels), project(CLASSES, [[2, 1], [2], [1]]))).toEqual({
    ...NONE,
    relabeled: 1,
  });
  expect(changesSince(run([[1], [0]], ["red"]), project(CLASSES, [[1], []]))).toEqual(NONE);
});
