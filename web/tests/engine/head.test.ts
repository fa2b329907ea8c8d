import { describe, expect, test } from "vitest";
import { eigen } from "../../src/engine/head/eigen";
import { fitHead } from "../../src/engine/head/fit";
import { LDA, Means } from "../../src/engine/head/gaussian";
import { dot, row, zeros } from "../../src/engine/head/matrix";
import { RANK } from "../../src/engine/head/projection";
import { Ridge } from "../../src/engine/head/ridge";
import { addUp, type Embeddings, embedding } from "../../src/engine/head/sums";
import { Random } from "../../src/engine/random";
import { taskOf } from "../../src/engine/tasks";
import { expectClose, fixture, type Given } from "./fixture";

describe("eigenvalues and eigenvectors", () => {
  test.each([1, 2, 3, 17, 60])("of %i x %i", (size) => {
    const random = new Random(size, 0);
    const matrix = zeros(size, size);
    for (let i = 0; i < size; i++) {
      for (let j = i; j < size; j++) matrix.data[i * size + j] = random.normal();
    }
    const at = (i: number, j: number) => matrix.data[Math.min(i, j) * size + Math.max(i, j)]!;
    const full = Array.from({ length: size }, (_, i) =>
      Float64Array.from({ length: size }, (_, j) => at(i, j)),
    );
    const { values, vectors } = eigen(matrix);
    expect([...values]).toEqual([...values].sort((a, b) => a - b));
    for (let k = 0; k < size; k++) {
      const vector = row(vectors, k);
      const mapped = full.map((values) => dot(values, vector));
      expectClose(
        mapped,
        vector.map((value) => values[k]! * value),
        1e-10 * size,
      );
      for (let l = 0; l < size; l++) {
        expect(dot(vector, row(vectors, l))).toBeCloseTo(Number(k === l), 10);
      }
    }
  });

  test("of a matrix with equal and zero values", () => {
    const matrix = zeros(4, 4);
    for (const i of [0, 1, 2]) matrix.data[5 * i] = 2;
    expect([...eigen(matrix).values]).toEqual([0, 2, 2, 2]);
  });
});

function embeddings(size: number, rows: number[], labels: number[], classes: number): Embeddings {
  const task = taskOf("classification", classes);
  return { size, rows: Float32Array.from(rows), labels: labels.map((label) => [label]), task };
}

describe("the closed forms, one by one", () => {
  const { rows, labels, forms } = fixture.forms;
  const of = embeddings(4, rows, labels, 4);
  const sums = addUp(of);
  const made = [new Means(of, sums), new LDA(of, sums), new Ridge(of, sums)];

  test.each(made.map((form, i) => ({ name: form.name, form, expected: forms[i] })))(
    "$name",
    ({ form, expected }) => {
      expect(form.name).toBe(expected.name);
      form.strengths.forEach((_, s) => {
        const found = of.labels.flatMap((label, i) => [
          ...form.leftOut(embedding(of, i), label)[s]!,
        ]);
        expectClose(found, expected.leftOut[s], 1e-9);
        const { weight, bias } = form.layer(s);
        expectClose(weight.data, expected.layers[s][0], 1e-9);
        expectClose(bias, expected.layers[s][1], 1e-9);
      });
    },
  );

  test("leave-one-out is what fits to all others give", () => {
    const index = 5;
    const others = of.labels.flatMap((_, i) => (i === index ? [] : [i]));
    const rest: Embeddings = {
      ...of,
      rows: Float32Array.from(others.flatMap((i) => [...embedding(of, i)])),
      labels: others.map((i) => of.labels[i]!),
    };
    const [left] = made[0]!.leftOut(embedding(of, index), of.labels[index]!);
    const fitted = new Means(rest, addUp(rest)).layer();
    const scores = fitted.bias.map((b, c) => b + dot(row(fitted.weight, c), embedding(of, index)));
    // The precision is that of all photos, and scores are equal up to one constant of the photo.
    const ratio = (left![2]! - left![0]!) / (scores[2]! - scores[0]!);
    expect(left![3]! - left![0]!).toBeCloseTo(ratio * (scores[3]! - scores[0]!), 9);
  });
});

test.each(fixture.heads as Given[])("the head of $size values is Python's: $name", (expected) => {
  const { size, rows, labels, classes } = expected;
  const found = fitHead(embeddings(size, rows, labels, classes))!;
  expect(found.name).toBe(expected.name);
  expect(found.strength).toBe(expected.strength ?? Infinity);
  // Python projects more than 384 values in float32.
  const tolerance = size > RANK ? 1e-4 : 1e-5;
  expectClose(found.weight, expected.weight, tolerance);
  expectClose(found.bias, expected.bias, tolerance);
  expect(found.score!.value).toBe(expected.accuracy);
  expect(found.score!.loss).toBeCloseTo(expected.loss, 4);
});

test.each(fixture.attributeHeads as Given[])(
  "the head of $size attributes is Python's",
  (given) => {
    const { size, rows, labels } = given;
    const task = taskOf("attributes", labels[0].length);
    const found = fitHead({ size, rows: Float32Array.from(rows), labels, task })!;
    expect([found.name, given.name]).toEqual(["ridge", "ridge"]);
    expect(found.strength).toBeCloseTo(given.strength, 9);
    expectClose(found.weight, given.weight, 1e-5);
    expectClose(found.bias, given.bias, 1e-5);
    expect(found.score!.value).toBeCloseTo(given.accuracy, 9);
    expect(found.score!.loss).toBeCloseTo(given.loss, 4);
  },
);

test("a photo of each class alone gives class means and no score", () => {
  const found = fitHead(embeddings(2, [0, 1, 1, 0], [0, 1], 2))!;
  expect(found.name).toBe("class means");
  expect(found.score).toBeNull();
  expect(fitHead(embeddings(2, [], [], 2))).toBeNull();
});
