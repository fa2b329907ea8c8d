/** Independent random streams from the one seed of a run; see data/streams.py. */

/** The uses of random numbers in a run. */
export const Purpose = { ORDER: 1, CROP: 2, DROPOUT: 3, CLASSIFIER: 4, SAMPLE: 5 } as const;

/** The generator sfc32 of PractRand. It gives other numbers than numpy's, which are not asked for. */
export class Random {
  private readonly state: Uint32Array;

  constructor(seed: number, purpose: number, ...numbers: number[]) {
    this.state = new Uint32Array(4);
    // Each number goes through all words: streams whose numbers differ anywhere are independent.
    for (const number of [seed, purpose, ...numbers, numbers.length]) {
      for (const half of [number >>> 0, Math.floor(number / 2 ** 32) >>> 0]) {
        for (let i = 0; i < 4; i++) {
          const before = this.state[(i + 3) % 4]!;
          this.state[i] = mix(this.state[i]! ^ half ^ (before + 0x9e3779b9 * (i + 1)));
        }
      }
    }
    for (let i = 0; i < 12; i++) this.word();
  }

  /** A uniform number of [0, 1) with 32 bits. */
  uniform(low = 0, high = 1): number {
    return low + (high - low) * (this.word() / 2 ** 32);
  }

  /** A whole number of 0 up to, but without, `end`. */
  below(end: number): number {
    return Math.floor(this.uniform() * end);
  }

  /** A normal number of mean 0 and variance 1 (Box and Muller, 1958). */
  normal(): number {
    return Math.sqrt(-2 * Math.log(1 - this.uniform())) * Math.cos(2 * Math.PI * this.uniform());
  }

  /** The numbers 0 to `count - 1` in random order. */
  permutation(count: number): Uint32Array {
    const order = Uint32Array.from({ length: count }, (_, i) => i);
    for (let i = count - 1; i > 0; i--) {
      const j = this.below(i + 1);
      [order[i], order[j]] = [order[j]!, order[i]!];
    }
    return order;
  }

  private word(): number {
    const s = this.state;
    const sum = (s[0]! + s[1]! + s[3]!) >>> 0;
    s[3] = s[3]! + 1;
    s[0] = s[1]! ^ (s[1]! >>> 9);
    s[1] = s[2]! + (s[2]! << 3);
    s[2] = ((s[2]! << 21) | (s[2]! >>> 11)) + sum;
    return sum;
  }
}

/** The finalizer of MurmurHash3: every bit of the input changes every bit of the output. */
function mix(value: number): number {
  let h = value | 0;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return h ^ (h >>> 16);
}
