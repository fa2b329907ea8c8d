/** A photo as it is kept: upright, not larger than training needs, and with a thumbnail. */
import { UserError } from "../../contract";
import { OPTIONS } from "../../engine/pixels";
import { sha256 } from "../../formats/bytes";
import { texts } from "../texts";
import { type Dimensions, dimensionsOf } from "./dimensions";

const MOST_BYTES = 64 << 20;
/** As in Python, where Pillow has this limit. */
const MOST_PIXELS = 178_956_970;
/** Photos of more bytes or pixels are decoded one by one: 50 million pixels take 200 MB until then. */
const LARGE = { bytes: 4 << 20, pixels: 16_000_000 };
/** Photos whose shorter side is longer are kept smaller; twice the size of any kit is enough. */
const LARGEST = 768;
const KEPT = 512;
const THUMBNAIL = 128;

export interface Prepared {
  blob: Blob;
  thumbnail: Blob;
  digest: string;
}

/** The last of the large photos. */
let large: Promise<unknown> = Promise.resolve();

/** @throws UserError if the file is too large, or no photo that the browser can open. */
export async function preparePhoto(file: Blob): Promise<Prepared> {
  const pixels = await checkPhoto(file);
  if (file.size <= LARGE.bytes && pixels <= LARGE.pixels) return prepare(file);
  const done = large.then(() => prepare(file));
  large = done.catch(() => undefined);
  return done;
}

/**
 * The pixels of a photo, as its first bytes tell; 0 where they do not.
 *
 * @throws UserError if it is too large to be decoded.
 */
export async function checkPhoto(file: Blob): Promise<number> {
  if (file.size > MOST_BYTES) throw new UserError(texts.tooLarge(MOST_BYTES >> 20));
  return checkPixels((await dimensionsOf(file)) ?? { width: 0, height: 0 });
}

function checkPixels({ width, height }: Dimensions): number {
  if (width * height > MOST_PIXELS) throw new UserError(texts.tooManyPixels(MOST_PIXELS));
  return width * height;
}

async function prepare(file: Blob): Promise<Prepared> {
  const bitmap = await decode(file);
  try {
    checkPixels(bitmap);
    const shorter = Math.min(bitmap.width, bitmap.height);
    const blob = shorter > LARGEST ? await scaled(bitmap, KEPT / shorter) : asBlob(file);
    const digest = await sha256(new Uint8Array(await file.arrayBuffer()));
    return { blob, thumbnail: await thumbnailOf(bitmap), digest };
  } finally {
    bitmap.close();
  }
}

/** @throws UserError if the file is no photo that the browser can open. */
export async function decode(file: Blob): Promise<ImageBitmap> {
  try {
    return await createImageBitmap(file, OPTIONS);
  } catch {
    throw new UserError(texts.noPhoto);
  }
}

/** The bytes without the file's name and place, which would be kept too. */
function asBlob(file: Blob): Blob {
  return file.slice(0, file.size, file.type);
}

function scaled(bitmap: ImageBitmap, factor: number): Promise<Blob> {
  const width = Math.round(bitmap.width * factor);
  const height = Math.round(bitmap.height * factor);
  const { canvas, context } = whiteCanvas(width, height);
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, 0, 0, width, height);
  return canvas.convertToBlob({ type: "image/jpeg", quality: 0.92 });
}

/** The middle square. */
export function thumbnailOf(source: ImageBitmap | OffscreenCanvas): Promise<Blob> {
  const side = Math.min(source.width, source.height);
  const { canvas, context } = whiteCanvas(THUMBNAIL, THUMBNAIL);
  context.imageSmoothingQuality = "medium";
  const [x, y] = [(source.width - side) / 2, (source.height - side) / 2];
  context.drawImage(source, x, y, side, side, 0, 0, THUMBNAIL, THUMBNAIL);
  return canvas.convertToBlob({ type: "image/jpeg", quality: 0.75 });
}

/** Transparent parts of a photo become white, as in training. */
function whiteCanvas(width: number, height: number) {
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d")!;
  context.fillStyle = "white";
  context.fillRect(0, 0, width, height);
  return { canvas, context };
}
