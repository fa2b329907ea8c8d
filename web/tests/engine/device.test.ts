import { describe, expect, test, vi } from "vitest";
import type { Device, Trial } from "../../src/contract";
import { browserHasGpu, chooseDevice } from "../../src/engine/device";
import { tryStep } from "../../src/engine/trial";
import { openKit, startRuntime } from "./kits";

const trial = (seconds: number, factor = 1): Trial => ({
  loss: 1.5 * factor,
  gradients: new Map([
    ["weight", new Float32Array([1, -2, 3]).map((value) => value * factor)],
    ["bias", new Float32Array([0, 0])],
  ]),
  seconds,
});

/** What is chosen where there is a GPU, and which devices were tried for it. */
async function chosen(gpu: Trial | null, plain: Trial | null, hasGpu = true) {
  const tried: Device[] = [];
  const tryOn = async (device: Device) => {
    tried.push(device);
    return device === "webgpu" ? gpu : plain;
  };
  return { ...(await chooseDevice({ hasGpu: async () => hasGpu, tryOn })), tried };
}

describe("the device of a run", () => {
  test("is the GPU where it computes the same and is faster", async () => {
    expect(await chosen(trial(1, 1.00001), trial(3))).toMatchObject({
      device: "webgpu",
      speedup: 3,
      tried: ["webgpu", "wasm"],
    });
  });

  test("is WebAssembly where the GPU is no faster", async () => {
    expect(await chosen(trial(2), trial(2.2))).toMatchObject({ device: "wasm", speedup: 1.1 });
  });

  const other = trial(1);
  other.gradients.get("weight")![2] = 3.1;
  const nonzero = trial(1);
  nonzero.gradients.get("bias")![0] = 0.1;
  const short = { ...trial(1), gradients: new Map([["weight", new Float32Array(3)]]) };
  test.each([
    ["fails", null, trial(3)],
    ["has another loss", trial(1, 1.01), trial(3)],
    ["has another gradient", other, trial(3)],
    ["has a gradient where there is none", nonzero, trial(3)],
    ["lacks a gradient", short, trial(3)],
    ["gives no number", trial(1, NaN), trial(3)],
    ["has nothing to be compared with", trial(1), null],
  ])("is WebAssembly where the GPU %s", async (_, gpu, plain) => {
    expect(await chosen(gpu, plain)).toMatchObject({ device: "wasm", speedup: null });
  });

  test("is WebAssembly, untried, where there is no GPU", async () => {
    expect(await chosen(trial(1), trial(3), false)).toEqual({
      device: "wasm",
      speedup: null,
      tried: [],
    });
  });
});

describe("a GPU", () => {
  test.each([
    ["there is none", {}, false],
    ["it gives no adapter", { gpu: { requestAdapter: async () => null } }, false],
    ["it fails", { gpu: { requestAdapter: () => Promise.reject(new Error("lost")) } }, false],
    ["it gives an adapter", { gpu: { requestAdapter: async () => ({}) } }, true],
  ])("is asked for: %s", async (_, navigator, expected) => {
    vi.stubGlobal("navigator", navigator);
    vi.stubGlobal("WebAssembly", { Suspending: vi.fn() });
    expect(await browserHasGpu()).toBe(expected);
    vi.unstubAllGlobals();
  });

  test("is not used in a browser that cannot wait for it", async () => {
    vi.stubGlobal("navigator", { gpu: { requestAdapter: async () => ({}) } });
    vi.stubGlobal("WebAssembly", {});
    expect(await browserHasGpu()).toBe(false);
    vi.unstubAllGlobals();
  });
});

test("a trial gives the same each time, and leaves the kit as it is", async () => {
  startRuntime();
  const kit = await openKit("whole");
  const before = structuredClone(kit.parameters);
  const [first, second] = [await tryStep(kit), await tryStep(kit)];
  expect(kit.parameters).toEqual(before);
  expect(second.gradients).toEqual(first.gradients);
  expect(second.loss).toBe(first.loss);
  expect(first.seconds).toBeGreaterThan(0);
});
