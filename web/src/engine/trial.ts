/** A few steps on noise, by which two ways to compute a kit are compared. */
import type { Kit, Trial } from "../contract";
import { Engine } from "./engine";
import { Random } from "./random";

const STEPS = 5;

/**
 * Computes the step of a kit, with its initial values, on pixels that are the same in each browser.
 *
 * The parameters stay as they are, and so the loss and gradients are those of the first step. The
 * seconds are the median of the steps after it, which opens the graph.
 */
export async function tryStep(kit: Kit): Promise<Trial> {
  const { batch, size, task } = kit.manifest;
  const engine = new Engine(kit, kit.parameters, task.classes.length);
  const { questions, choices } = engine.task;
  const random = new Random(0, 0);
  const pixels = new Uint8Array(batch * size ** 2 * 3).map(() => random.below(256));
  const labels = Array.from({ length: batch }, (_, i) =>
    Array.from({ length: questions }, (_, question) => (i + question) % choices),
  );
  const start = await engine.prepare(pixels);
  const step = () => engine.gradients(start, labels, new Random(0, 1));
  const { loss, values } = await step();
  const found = { loss, gradients: new Map([...values].map(([name, g]) => [name, g.slice()])) };
  const seconds: number[] = [];
  for (let i = 0; i < STEPS; i++) {
    const began = performance.now();
    await step();
    seconds.push((performance.now() - began) / 1000);
  }
  await engine.release();
  return { ...found, seconds: seconds.sort((a, b) => a - b)[STEPS >> 1]! };
}
