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

it.each([[[0.7, 0.2]], [[0.2, 0.7]], [[0.3, 0.1, 0.6]]])(
  "without locks, one of the tabs that are opened at once stays (%s)",
  async (numbers) => {
    vi.stubGlobal("navigator", {});
    const random = vi.spyOn(Math, "random");
    for (const number of numbers) random.mockReturnValueOnce(number);
    const all = await Promise.allSettled(numbers.map(() => onlyTab(numbers.join())));
    random.mockRestore();
    expect(all.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
  },
);
