import { expect, test } from "vitest";
import { texts } from "../../src/page/texts";

test("a loss has room beside its chart, whatever it is", () => {
  const losses = [0, 0.0061, 0.01, 0.278, 2.773, 55.26, 1234.5, 86_400_000].map(texts.lossOf);
  expect(losses).toEqual(["0", "0.0061", "0.01", "0.28", "2.8", "55", "1.2K", "86M"]);
});
