/** Features in few bits: codes with a scale and an offset for each 128 values; see cache/code.py. */

const BLOCK = 128;
const FEW = 4096;

/** How the features of one photo are written as bytes. */
export class Code {
  /** Args: values of one photo; bits of a value: 8, 16, or 32 for float32 unchanged. */
  constructor(
    readonly values: number,
    readonly bits: 8 | 16 | 32,
  ) {}

  /** That of training photos: features of few values take little room anyway. */
  static ofTraining(values: number): Code {
    return new Code(values, values <= FEW ? 16 : 8);
  }

  get size(): number {
    if (this.bits === 32) return 4 * this.values;
    return this.blocks * (8 + (BLOCK * this.bits) / 8);
  }

  private get blocks(): number {
    return Math.ceil(this.values / BLOCK);
  }

  encode(features: Float32Array): Uint8Array {
    if (this.bits === 32) {
      return new Uint8Array(features.slice().buffer);
    }
    const f = Math.fround;
    const levels = 2 ** this.bits - 1;
    const bytes = new Uint8Array(this.size);
    const ranges = new Float32Array(bytes.buffer, 0, 2 * this.blocks);
    const codes = this.codes(bytes);
    for (let block = 0; block < this.blocks; block++) {
      const start = block * BLOCK;
      const part = features.subarray(start, start + BLOCK);
      const low = part.reduce((a, b) => Math.min(a, b), Infinity);
      const high = part.reduce((a, b) => Math.max(a, b), -Infinity);
      const step = f(f(high - low) / levels);
      ranges[2 * block] = low;
      ranges[2 * block + 1] = step;
      for (let k = 0; k < BLOCK; k++) {
        const value = part[Math.min(k, part.length - 1)]!;
        const code = roundToEven(f(f(value - low) / (step > 0 ? step : 1)));
        codes[start + k] = Math.min(levels, Math.max(0, code));
      }
    }
    return bytes;
  }

  /** Writes the features of a photo to a place of a batch. */
  decode(bytes: Uint8Array, into: Float32Array, at: number): void {
    // The bytes may begin anywhere in a larger buffer, where no float32 can be read.
    const own = bytes.byteOffset % 4 ? bytes.slice() : bytes;
    if (this.bits === 32) {
      into.set(new Float32Array(own.buffer, own.byteOffset, this.values), at);
      return;
    }
    const ranges = new Float32Array(own.buffer, own.byteOffset, 2 * this.blocks);
    const codes = this.codes(own);
    for (let i = 0; i < this.values; i++) {
      const block = Math.floor(i / BLOCK);
      into[at + i] = Math.fround(codes[i]! * ranges[2 * block + 1]!) + ranges[2 * block]!;
    }
  }

  private codes(bytes: Uint8Array): Uint8Array | Uint16Array {
    const start = bytes.byteOffset + 8 * this.blocks;
    const count = this.blocks * BLOCK;
    return this.bits === 8
      ? new Uint8Array(bytes.buffer, start, count)
      : new Uint16Array(bytes.buffer, start, count);
  }
}

/** As numpy rounds. */
function roundToEven(value: number): number {
  const rounded = Math.round(value);
  return rounded - value === 0.5 && rounded % 2 ? rounded - 1 : rounded;
}
