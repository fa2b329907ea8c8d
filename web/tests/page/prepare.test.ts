import { afterEach, expect, it, vi } from "vitest";
import { preparePhoto } from "../../src/page/collect/prepare";

afterEach(() => void vi.unstubAllGlobals());

/** Prepare three of a photo together; the most that were decoded at once. */
async function mostDecoded(photo: Blob): Promise<number> {
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
  await Promise.all([1, 2, 3].map(() => preparePhoto(photo)));
  return most;
}

/** A PNG as far as its size. */
function png(width: number, height: number): Blob {
  const head = Buffer.alloc(24);
  head.write("\x89PNG", "latin1");
  head.writeUInt32BE(width, 16);
  head.writeUInt32BE(height, 20);
  return new Blob([head]);
}

it("photos of too many pixels are refused before they are decoded", async () => {
  const decoded = vi.fn(() => Promise.resolve({ width: 20_000, height: 9_000, close: vi.fn() }));
  vi.stubGlobal("createImageBitmap", decoded);
  const said = "more than 178 million pixels; make it smaller";
  await expect(preparePhoto(png(30_000, 30_000))).rejects.toThrow(said);
  expect(decoded).not.toHaveBeenCalled();
  await expect(preparePhoto(new Blob(["unknown"]))).rejects.toThrow(said);
});

it("a file that no browser opens is told with what it opens", async () => {
  vi.stubGlobal("createImageBitmap", () =>
    Promise.reject(new DOMException("", "InvalidStateError")),
  );
  await expect(preparePhoto(new Blob(["II*\0"]))).rejects.toThrow(/^no photo .*: it reads JPEG/);
});

it("large photos are decoded one by one, others together", async () => {
  const [small, large] = [1000, 5 << 20].map((bytes) => new Blob([new Uint8Array(bytes)]));
  const all = [small!, large!, png(100, 100), png(5000, 5000)];
  const most: number[] = [];
  for (const each of all) most.push(await mostDecoded(each));
  expect(most).toEqual([3, 1, 3, 1]);
});
