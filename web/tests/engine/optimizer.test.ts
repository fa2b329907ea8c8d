import { describe, expect, test } from "vitest";
import type { State } from "../../src/contract";
import { gradientNorm, Optimizer } from "../../src/engine/optimizer";
import { learningRate } from "../../src/engine/schedule";
import { expectClose, fixture, type Given } from "./fixture";

const [{ start }, { gradients }, ...cases] = fixture.optimizers as [Given, Given, ...Given[]];
const SHAPES: Record<string, number[]> = { w: [4, 5], b: [7] };

function make(given: Given) {
  const parameters: State = new Map(
    Object.entries(start as Record<string, number[]>).map(([name, values]) => [
      name,
      { shape: SHAPES[name]!, data: Float32Array.from(values) },
    ]),
  );
  const { momentum, decay: weightDecay } = given;
  const rates = new Map([["b", 4]]);
  return {
    parameters,
    optimizer: new Optimizer(given.name, parameters, { momentum, weightDecay, rates }),
  };
}

function step(optimizer: Optimizer, number: number): void {
  const values = Object.entries(gradients[number] as Record<string, number[]>);
  const copies = new Map(values.map(([name, data]) => [name, Float32Array.from(data)]));
  optimizer.step(copies, 0.01 / (number + 1));
}

describe.each(cases)("$name with momentum $momentum and decay $decay", (given) => {
  test("equals numpy's within 1e-6", () => {
    const { parameters, optimizer } = make(given);
    for (let i = 0; i < gradients.length; i++) step(optimizer, i);
    for (const [name, { data }] of parameters) expectClose(data, given.values[name], 1e-6);
    const { slots } = optimizer.state();
    expect([...slots.keys()].sort()).toEqual(Object.keys(given.state).sort());
    for (const [name, buffer] of slots) expectClose(buffer, given.state[name], 1e-6);
  });

  test("goes on from its state with the same bits", () => {
    const whole = make(given);
    for (let i = 0; i < gradients.length; i++) step(whole.optimizer, i);
    const first = make(given);
    step(first.optimizer, 0);
    step(first.optimizer, 1);
    const second = make(given);
    for (const [name, { data }] of first.parameters) second.parameters.get(name)!.data.set(data);
    second.optimizer.load(structuredClone(first.optimizer.state()));
    for (let i = 2; i < gradients.length; i++) step(second.optimizer, i);
    for (const [name, { data }] of whole.parameters) {
      expect(second.parameters.get(name)!.data).toEqual(data);
    }
  });
});

test.each(fixture.schedule as Given[])(
  "warm-up and cosine of $steps steps equal Python's",
  (given) => {
    const { lr, steps, warmup, rates } = given as {
      lr: number;
      steps: number;
      warmup: number;
      rates: number[];
    };
    expectClose(
      rates.map((_, i) => learningRate(lr, i, steps, warmup)),
      rates,
      1e-12,
    );
  },
);

test("the norm of gradients is that of all values together", () => {
  expect(gradientNorm([Float32Array.of(3), Float32Array.of(0, 4)])).toBe(5);
  expect(gradientNorm([Float32Array.of(NaN)])).toBeNaN();
});
