import { afterEach, expect, it, vi } from "vitest";
import { onlyTab } from "../../src/page/tabs";

afterEach(() => void vi.unstubAllGlobals());

it("without locks, a second tab is refused, and one of another folder is not", async () => {
  vi.stubGlobal("navigator", {});
  await onlyTab("studio");
  await expect(onlyTab("studio")).rejects.toThrow("open in another tab");
  await expect(onlyTab("studio")).rejects.toThrow("open in another tab");
  await onlyTab("studio/below/");
});

it("without locks, one of two tabs that are opened at once is refused", async () => {
  vi.stubGlobal("navigator", {});
  const both = await Promise.allSettled([onlyTab("both"), onlyTab("both")]);
  expect(both.map(({ status }) => status).sort()).toEqual(["fulfilled", "rejected"]);
});
