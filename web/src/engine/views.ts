/** The square that a network sees of a photo, by the rules of data/transforms.py. */
import type { Random } from "./random";

const AREA = [0.22, 1] as const;
const ASPECT = [3 / 4, 4 / 3] as const;
const ATTEMPTS = 10;
const CENTER = 0.875;

/** A part of a photo, in pixels of the upright photo. */
export interface Box {
  left: number;
  top: number;
  width: number;
  height: number;
}

export interface View {
  box: Box;
  mirrored: boolean;
}

/** Gives the view of a photo of this width and height. */
export type ChooseView = (width: number, height: number, size: number) => View;

/** A random part of a photo, mirrored with probability 1/2. */
export function randomView(width: number, height: number, random: Random): View {
  return { box: randomBox(width, height, random), mirrored: random.uniform() < 0.5 };
}

/** The middle of a photo. */
export function centerView(width: number, height: number, size: number): View {
  const side = (Math.min(width, height) * size) / Math.ceil(size / CENTER);
  return { box: centered(width, height, side, side), mirrored: false };
}

/**
 * A box of random area, aspect ratio and place: ten draws, and if none fits into the photo, the
 * largest centered box of an allowed aspect ratio.
 */
function randomBox(width: number, height: number, random: Random): Box {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const area = width * height * random.uniform(...AREA);
    const aspect = Math.exp(random.uniform(Math.log(ASPECT[0]), Math.log(ASPECT[1])));
    const across = Math.round(Math.sqrt(area * aspect));
    const down = Math.round(Math.sqrt(area / aspect));
    if (across > 0 && across <= width && down > 0 && down <= height) {
      const left = random.below(width - across + 1);
      return { left, top: random.below(height - down + 1), width: across, height: down };
    }
  }
  const aspect = Math.min(Math.max(width / height, ASPECT[0]), ASPECT[1]);
  return centered(
    width,
    height,
    Math.min(width, height * aspect),
    Math.min(height, width / aspect),
  );
}

function centered(width: number, height: number, across: number, down: number): Box {
  return { left: (width - across) / 2, top: (height - down) / 2, width: across, height: down };
}
