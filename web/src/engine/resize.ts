/**
 * Pillow's resizing with the triangle filter: a part of a picture of 8-bit RGBA becomes a square of
 * 8-bit RGB, with antialiasing and the same rounding as `Image.resize(BILINEAR, box=...)`.
 */
import type { Box } from "./views";

const BITS = 22;

/** For each output pixel: the first input pixel, and fixed-point weights of it and the next ones. */
interface Weights {
  first: Int32Array;
  count: Int32Array;
  values: Int32Array;
  most: number;
}

/**
 * Args: RGBA pixels, opaque; their width and height; the part; the side of the result.
 * Returns uint8 (size, size, 3).
 */
export function resize(
  pixels: Uint8Array | Uint8ClampedArray,
  width: number,
  height: number,
  box: Box,
  size: number,
): Uint8Array {
  const across = weights(width, box.left, box.left + box.width, size);
  const down = weights(height, box.top, box.top + box.height, size);
  const top = down.first[0]!;
  const bottom = down.first[size - 1]! + down.count[size - 1]!;
  const rows = new Uint8Array((bottom - top) * size * 3);
  for (let y = top; y < bottom; y++) {
    for (let x = 0; x < size; x++) {
      sum(
        pixels,
        (y * width + across.first[x]!) * 4,
        4,
        across,
        x,
        rows,
        ((y - top) * size + x) * 3,
      );
    }
  }
  const result = new Uint8Array(size * size * 3);
  for (let y = 0; y < size; y++) {
    const from = (down.first[y]! - top) * size * 3;
    for (let x = 0; x < size; x++) {
      sum(rows, from + x * 3, size * 3, down, y, result, (y * size + x) * 3);
    }
  }
  return result;
}

/** Reverses each row of a square of RGB pixels, in place. */
export function mirror(pixels: Uint8Array, size: number): void {
  for (let y = 0; y < size; y++) {
    for (let x = 0; x < size >> 1; x++) {
      const left = (y * size + x) * 3;
      const right = (y * size + size - 1 - x) * 3;
      for (let c = 0; c < 3; c++) {
        const kept = pixels[left + c]!;
        pixels[left + c] = pixels[right + c]!;
        pixels[right + c] = kept;
      }
    }
  }
}

/** The weighted sum of the inputs of one output pixel, for its three colors. */
function sum(
  source: Uint8Array | Uint8ClampedArray,
  from: number,
  stride: number,
  by: Weights,
  index: number,
  into: Uint8Array,
  at: number,
): void {
  const start = index * by.most;
  let red = 1 << (BITS - 1);
  let green = red;
  let blue = red;
  let place = from;
  for (let k = start; k < start + by.count[index]!; k++, place += stride) {
    const weight = by.values[k]!;
    red += source[place]! * weight;
    green += source[place + 1]! * weight;
    blue += source[place + 2]! * weight;
  }
  into[at] = clip(red);
  into[at + 1] = clip(green);
  into[at + 2] = clip(blue);
}

function clip(value: number): number {
  return Math.min(255, Math.max(0, value >> BITS));
}

function weights(length: number, from: number, to: number, size: number): Weights {
  // Pillow takes the edges of a box in float32.
  const edge = Math.fround(from);
  const scale = Math.fround(Math.fround(to) - edge) / size;
  const stretch = Math.max(scale, 1);
  const most = Math.ceil(stretch) * 2 + 1;
  const first = new Int32Array(size);
  const count = new Int32Array(size);
  const values = new Int32Array(size * most);
  for (let i = 0; i < size; i++) {
    const center = edge + (i + 0.5) * scale;
    const start = Math.max(0, Math.trunc(center - stretch + 0.5));
    const end = Math.min(length, Math.trunc(center + stretch + 0.5));
    const shares: number[] = [];
    for (let k = start; k < end; k++) {
      shares.push(Math.max(0, 1 - Math.abs((k - center + 0.5) / stretch)));
    }
    const total = shares.reduce((a, b) => a + b, 0) || 1;
    shares.forEach((share, k) => {
      values[i * most + k] = Math.trunc(0.5 + (share / total) * (1 << BITS));
    });
    first[i] = start;
    count[i] = end - start;
  }
  return { first, count, values, most };
}
