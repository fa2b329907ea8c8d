/** Scores of logits, also of classes of uneven size. */
import { expect, test } from "vitest";
import { Metric } from "../../src/engine/metric";
import { taskOf } from "../../src/engine/tasks";

const sizes = [24, 8, 2];
const weights = [0.3, 0.9, 1.9];

/** The score where the photos at these places are wrong; classes take turns. */
function scoreWith(wrong: readonly number[]) {
  const labels = sizes.flatMap((size, group) => new Array<number>(size).fill(group));
  const places = labels.map((_, i) => (i * 7) % labels.length);
  const metric = new Metric(taskOf("classification", 3), weights);
  for (const place of places) {
    const label = labels[place]!;
    const named = wrong.includes(place) ? (label + 1) % 3 : label;
    metric.update(
      Float32Array.of(0, 0, 0).map((_, i) => (i === named ? 1 : 0)),
      [[label]],
    );
  }
  return metric.score;
}

test("rare classes weigh more", () => {
  const recalls = [22 / 24, 7 / 8, 1];
  const all = sizes.map((size, group) => size * weights[group]!);
  const marks = all.reduce((sum, each, group) => sum + each * recalls[group]!, 0);
  const found = scoreWith([0, 5, 30]);
  expect(found.value).toBeCloseTo(marks / all.reduce((a, b) => a + b), 12);
});

test("networks with equal recalls have the same accuracy to the bit", () => {
  const values = new Set<number>();
  for (let first = 0; first < 24; first++)
    for (let other = 24; other < 32; other++)
      values.add(scoreWith([first, (first + 9) % 24, other]).value);
  expect(values.size).toBe(1);
});

test("photos of attributes have the same accuracy to the bit, however what is right is spread", () => {
  const metric = new Metric(taskOf("attributes", 3));
  // Thirds that are added photo by photo round to another sum.
  for (const right of [2, 2, 2, 2, 2, 2, 1]) {
    metric.update(
      Float32Array.of(0, 1, 2).map((i) => (i < right ? 1 : -1)),
      [[1, 1, 1]],
    );
  }
  expect(metric.score.value).toBe(13 / 21);
});
