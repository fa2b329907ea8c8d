/** SHA-256 (FIPS 180-4), for pages without `crypto.subtle`: those of plain http. */

/** The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
const FACTORS = primes(64).map((prime) => fraction(Math.cbrt(prime)));
/** The same of the square roots of the first 8. */
const START = primes(8).map((prime) => fraction(Math.sqrt(prime)));
const BLOCK = 64;

export function digest(bytes: Uint8Array): Uint8Array {
  const state = Int32Array.from(START);
  const whole = bytes.length - (bytes.length % BLOCK);
  for (let at = 0; at < whole; at += BLOCK) mix(state, bytes.subarray(at, at + BLOCK));
  const rest = bytes.length - whole;
  const last = new Uint8Array(rest + 9 > BLOCK ? 2 * BLOCK : BLOCK);
  last.set(bytes.subarray(whole));
  last[rest] = 0x80;
  const bits = new DataView(last.buffer);
  bits.setUint32(last.length - 8, Math.floor(bytes.length / 2 ** 29));
  bits.setUint32(last.length - 4, bytes.length << 3);
  for (let at = 0; at < last.length; at += BLOCK) mix(state, last.subarray(at, at + BLOCK));
  const found = new DataView(new ArrayBuffer(32));
  state.forEach((word, i) => found.setInt32(4 * i, word));
  return new Uint8Array(found.buffer);
}

const words = new Int32Array(BLOCK);

function mix(state: Int32Array, block: Uint8Array): void {
  const given = new DataView(block.buffer, block.byteOffset, BLOCK);
  for (let i = 0; i < 16; i++) words[i] = given.getInt32(4 * i);
  for (let i = 16; i < BLOCK; i++) {
    const [early, late] = [words[i - 15]!, words[i - 2]!];
    const one = turned(early, 7) ^ turned(early, 18) ^ (early >>> 3);
    const two = turned(late, 17) ^ turned(late, 19) ^ (late >>> 10);
    words[i] = words[i - 16]! + one + words[i - 7]! + two;
  }
  let [a, b, c, d, e, f, g, h] = state as unknown as [
    ...[number, number, number, number],
    ...[number, number, number, number],
  ];
  for (let i = 0; i < BLOCK; i++) {
    const high = turned(e, 6) ^ turned(e, 11) ^ turned(e, 25);
    const first = (h + high + ((e & f) ^ (~e & g)) + FACTORS[i]! + words[i]!) | 0;
    const low = turned(a, 2) ^ turned(a, 13) ^ turned(a, 22);
    const second = low + ((a & b) ^ (a & c) ^ (b & c));
    [h, g, f, e] = [g, f, e, (d + first) | 0];
    [d, c, b, a] = [c, b, a, (first + second) | 0];
  }
  [a, b, c, d, e, f, g, h].forEach((value, i) => (state[i]! += value));
}

const turned = (word: number, bits: number): number => (word >>> bits) | (word << (32 - bits));

function primes(count: number): number[] {
  const found: number[] = [];
  for (let n = 2; found.length < count; n++) if (found.every((prime) => n % prime)) found.push(n);
  return found;
}

function fraction(root: number): number {
  return Math.floor((root % 1) * 2 ** 32) | 0;
}
