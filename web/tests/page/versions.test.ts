import { describe, expect, it } from "vitest";
import { plan } from "../../src/page/versions";

describe("what is kept for use without a network", () => {
  const files = {
    "index.html": "1",
    "worker-wasm-A.js": "2",
    "ort-wasm-simd-threaded.wasm.gz": "3",
  };
  const gpu = { "worker-webgpu-B.js": "4", "ort-wasm-simd-threaded.jspi.wasm.gz": "5" };
  const now = { version: "now", files: { ...files, ...gpu } };

  it("is everything but what computes on a GPU", () => {
    expect(plan(undefined, now)).toEqual({ reused: [], fetched: Object.keys(files) });
  });

  it("is fetched again only where it has changed", () => {
    const before = { version: "before", files: { ...now.files, "index.html": "0" } };
    const { reused, fetched } = plan(before, now);
    expect(fetched).toEqual(["index.html"]);
    expect(reused).toEqual(["worker-wasm-A.js", "ort-wasm-simd-threaded.wasm.gz"]);
  });
});
