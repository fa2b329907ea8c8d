/** What make_engine.py makes by formulas. */
import type { Manifest } from "../../src/contract";

/** The photos of make_engine.py. */
export function madePhotos({ size }: Manifest, seed: number, count: number): Uint8Array {
  const pixels = new Uint8Array(count * size * size * 3);
  let at = 0;
  for (let n = 0; n < count; n++) {
    for (let y = 0; y < size; y++) {
      for (let x = 0; x < size; x++) {
        for (let c = 0; c < 3; c++) {
          pixels[at++] = (x * (n + 1) + y * (c + 2) * (seed + 1) + 40 * n) % 256;
        }
      }
    }
  }
  return pixels;
}

/** The dropout masks of make_engine.py. */
export function madeMasks(manifest: Manifest): Map<string, Float32Array> {
  return new Map(
    manifest.masks.map(({ name, shape, keep }) => {
      const values = new Float32Array(shape.reduce((a, b) => a * b, 1));
      return [
        name,
        values.map((_, i) => {
          const random = Math.fround(((i * 2654435761) % 2 ** 32) / 2 ** 32);
          return random < Math.fround(keep) ? Math.fround(1 / keep) : 0;
        }),
      ];
    }),
  );
}
