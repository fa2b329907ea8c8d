/** Scores and other parts that several files of a run have in common. */
import type { Score } from "../contract";
import { float, type Json } from "./json";
import { fields, finite, oneOf, orNull } from "./schema";

export const readScore = orNull(
  fields<Score>({ name: oneOf("accuracy"), value: finite, loss: finite, style: oneOf(".1%") }),
);

/** The JSON of a score. Its numbers are floats in Python, and hashes tell `1` from `1.0`. */
export function scoreJson(score: Score | null): Json {
  if (!score) return null;
  return new Map<string, Json>([
    ["name", score.name],
    ["value", float(score.value)],
    ["loss", float(score.loss)],
    ["style", score.style],
  ]);
}
