import { describe, expect, it } from "vitest";
import { dumpJson, fromJson, parseJson, reprFloat, toJson } from "../../src/formats/json";
import { json } from "./fixtures";

interface Cases {
  cases: { text: string; plain: string; sorted: string; indented: string }[];
  floats: string[];
  invalid: string[];
}

const { cases, floats, invalid } = json<Cases>("json.json");

describe("JSON", () => {
  it.each(cases)("is written as Python writes it: $text", ({ text, plain, sorted, indented }) => {
    const value = parseJson(text);
    expect(dumpJson(value)).toBe(plain);
    expect(dumpJson(value, { sorted: true })).toBe(sorted);
    expect(dumpJson(value, { indent: 2, unicode: true })).toBe(indented);
    expect(dumpJson(parseJson(plain))).toBe(plain);
  });

  it.each(floats)("prints the float %s", (repr) => {
    expect(reprFloat(Number(repr))).toBe(repr);
    expect(reprFloat(-Number(repr))).toBe("-" + repr);
  });

  it.each(invalid)("refuses %j", (text) => {
    expect(() => parseJson(text)).toThrow();
  });

  it("refuses what would exhaust the stack", () => {
    expect(() => parseJson("[".repeat(100_000))).toThrow("more than 200 levels");
  });

  it("turns plain values to JSON and back", () => {
    const value = { a: [1, 2.5, null, true], __proto: { b: "x" } };
    expect(fromJson(parseJson(dumpJson(toJson(value))))).toEqual(value);
    expect(dumpJson(toJson({ loss: NaN, left: undefined, n: 3 }))).toBe('{"loss": null, "n": 3}');
  });

  it("takes __proto__ for a name like any other", () => {
    const value = fromJson(parseJson('{"__proto__": {"polluted": 1}}')) as object;
    expect(Object.keys(value)).toEqual(["__proto__"]);
    expect(Object.getPrototypeOf(value)).toBe(Object.prototype);
  });
});
