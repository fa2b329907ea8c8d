/** Frames of a recording that show something new. */

/** A frame as 16 x 16 gray values. */
export type Signature = Uint8Array;

export const SIDE = 16;

/** Mean difference of a pixel, of 255, below which two frames are alike: noise of a still camera. */
const ALIKE = 3;
/** Frames that a new one is compared with. */
const COMPARED = 24;

/** The gray values of `SIDE` x `SIDE` RGBA pixels, whose mean is taken off: light may flicker. */
export function signatureOf(pixels: Uint8ClampedArray): Signature {
  const gray = new Float32Array(SIDE * SIDE);
  let sum = 0;
  for (let i = 0; i < gray.length; i++) {
    gray[i] = 0.299 * pixels[4 * i]! + 0.587 * pixels[4 * i + 1]! + 0.114 * pixels[4 * i + 2]!;
    sum += gray[i]!;
  }
  const shift = 128 - sum / gray.length;
  return Uint8Array.from(gray, (value) => Math.min(255, Math.max(0, Math.round(value + shift))));
}

/** Keeps signatures of the last frames, and says which frames differ from all of them. */
export class Distinct {
  private readonly seen: Signature[] = [];

  /** Whether a frame is new; it then counts as seen. */
  accept(frame: Signature): boolean {
    if (this.seen.some((other) => difference(frame, other) < ALIKE)) return false;
    this.seen.push(frame);
    if (this.seen.length > COMPARED) this.seen.shift();
    return true;
  }
}

function difference(a: Signature, b: Signature): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += Math.abs(a[i]! - b[i]!);
  return sum / a.length;
}
