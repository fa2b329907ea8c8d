import { afterEach, expect, it, vi } from "vitest";
import { whyOneThread } from "../../src/page/train/threads";

afterEach(() => void vi.unstubAllGlobals());

it.each([
  [true, true, 2, /^$/],
  [true, true, 1, /^One thread computes, as .* one core; .*\.$/],
  [true, false, 8, /^One thread computes, as .* has not isolated this page; .*\.$/],
  [false, false, 8, /^One thread computes, as .* without https; .*\.$/],
])("https %s, isolated %s and %d cores are told", (https, isolated, cores, said) => {
  vi.stubGlobal("isSecureContext", https);
  vi.stubGlobal("crossOriginIsolated", isolated);
  vi.stubGlobal("navigator", { hardwareConcurrency: cores });
  expect(whyOneThread()).toMatch(said);
});
