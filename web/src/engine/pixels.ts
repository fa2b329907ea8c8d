/** Photos as the pixels that the graphs take, decoded by the browser. */
import { UserError } from "../contract";
import { mirror, resize } from "./resize";
import type { Box, ChooseView } from "./views";

/** A photo that cannot be decoded; it is left out or replaced. */
export class Unreadable extends UserError {}

/** Gives uint8 (size, size, 3) of a photo; throws Unreadable. */
export type ReadPixels = (
  photo: Blob | ImageBitmap,
  choose: ChooseView,
  size: number,
) => Promise<Uint8Array>;

/** A part with more than so many times the pixels of the result, in one direction, is drawn smaller
 * first: its pixels need not all be copied. */
const MOST = 4;

/** How photos are decoded: upright, and with the values that the file has, as Python reads them. */
export const OPTIONS: ImageBitmapOptions = {
  imageOrientation: "from-image",
  premultiplyAlpha: "none",
  colorSpaceConversion: "none",
};

let canvas: OffscreenCanvas | undefined;

export const readPixels: ReadPixels = async (photo, choose, size) => {
  const picture = photo instanceof Blob ? await decode(photo) : photo;
  try {
    const { box, mirrored } = choose(picture.width, picture.height, size);
    const pixels = crop(picture, box, size);
    if (mirrored) mirror(pixels, size);
    return pixels;
  } finally {
    if (photo instanceof Blob) picture.close();
  }
};

async function decode(photo: Blob): Promise<ImageBitmap> {
  try {
    return await createImageBitmap(photo, OPTIONS);
  } catch {
    throw new Unreadable("A photo cannot be decoded: it is damaged, or no picture.");
  }
}

function crop(picture: ImageBitmap, box: Box, size: number): Uint8Array {
  // One pixel around the part, which the filter reads beyond its edges.
  const left = Math.max(0, Math.floor(box.left) - 1);
  const top = Math.max(0, Math.floor(box.top) - 1);
  const right = Math.min(picture.width, Math.ceil(box.left + box.width) + 1);
  const bottom = Math.min(picture.height, Math.ceil(box.top + box.height) + 1);
  const shrink = Math.min(1, (MOST * size) / Math.min(box.width, box.height));
  const width = Math.max(1, Math.round((right - left) * shrink));
  const height = Math.max(1, Math.round((bottom - top) * shrink));
  const across = width / (right - left);
  const down = height / (bottom - top);
  const context = contextOf(width, height);
  // Transparent parts become white, as they do in Python.
  context.fillStyle = "white";
  context.fillRect(0, 0, width, height);
  context.imageSmoothingQuality = "high";
  context.drawImage(picture, left, top, right - left, bottom - top, 0, 0, width, height);
  const part = {
    left: (box.left - left) * across,
    top: (box.top - top) * down,
    width: box.width * across,
    height: box.height * down,
  };
  return resize(context.getImageData(0, 0, width, height).data, width, height, part, size);
}

function contextOf(width: number, height: number): OffscreenCanvasRenderingContext2D {
  canvas ??= new OffscreenCanvas(width, height);
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  if (!context) throw new UserError("This browser cannot draw photos; try another one.");
  return context;
}
