import { afterEach, expect, it, vi } from "vitest";
import { preparePhoto } from "../../src/page/collect/prepare";

afterEach(() => void vi.unstubAllGlobals());

/** Prepare photos of so many bytes together; the most that were decoded at once. */
async function mostDecoded(bytes: number): Promise<number> {
  let [open, most] = [0, 0];
  const createImageBitmap = () => {
    most = Math.max(most, ++open);
    return Promise.resolve({ width: 9, height: 9, close: () => open-- });
  };
  vi.stubGlobal("createImageBitmap", createImageBitmap);
  const context = { fillRect() {}, drawImage() {} };
  const blob = new Blob([]);
  vi.stubGlobal(
    "OffscreenCanvas",
    class {
      getContext = () => context;
      convertToBlob = () => new Promise((resolve) => setTimeout(() => resolve(blob)));
    },
  );
  const photo = new Blob([new Uint8Array(bytes)]);
  await Promise.all([1, 2, 3].map(() => preparePhoto(photo)));
  return most;
}

it("large photos are decoded one by one, others together", async () => {
  expect([await mostDecoded(1000), await mostDecoded(5 << 20)]).toEqual([3, 1]);
});
