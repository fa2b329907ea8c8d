/** Width and height of a photo, which its first bytes have, before it is decoded. */

/** Of most files, all that is looked at. */
const HEAD = 1 << 16;
/** Segments of a JPEG that are passed at most on the way to its size. */
const MOST_SEGMENTS = 1000;

export interface Dimensions {
  width: number;
  height: number;
}

/** Those of a PNG, JPEG, WebP, GIF, BMP, AVIF or HEIC; null where the bytes do not tell. */
export async function dimensionsOf(file: Blob): Promise<Dimensions | null> {
  const bytes = new DataView(await file.slice(0, HEAD).arrayBuffer());
  try {
    if (bytes.getUint16(0) === 0xffd8) return await ofJpeg(file, bytes.buffer);
    const kind = text(bytes, 0, 4);
    if (kind === "\x89PNG") return { width: bytes.getUint32(16), height: bytes.getUint32(20) };
    if (kind === "GIF8") {
      return { width: bytes.getUint16(6, true), height: bytes.getUint16(8, true) };
    }
    if (kind.startsWith("BM")) return ofBmp(bytes);
    if (kind === "RIFF" && text(bytes, 8, 4) === "WEBP") return ofWebp(bytes);
    return text(bytes, 4, 4) === "ftyp" ? ofBoxes(bytes) : null;
  } catch (error) {
    if (error instanceof RangeError) return null; // the file is cut off
    throw error;
  }
}

/** The first frame header, behind segments of any length, as of a color profile. */
async function ofJpeg(file: Blob, head: ArrayBuffer): Promise<Dimensions | null> {
  let at = 2;
  for (let i = 0; i < MOST_SEGMENTS; i++) {
    const isRead = at + 9 <= head.byteLength; // each further read of many photos adds up
    const segment = new DataView(
      isRead ? head.slice(at, at + 9) : await file.slice(at, at + 9).arrayBuffer(),
    );
    const [fill, kind] = [segment.getUint8(0), segment.getUint8(1)];
    if (fill !== 0xff) return null;
    // From C0 to CF are frames, except for three tables.
    const isFrame = kind >= 0xc0 && kind <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(kind);
    if (isFrame) return ofFrame(segment);
    at += kind === 0xff ? 1 : 2 + segment.getUint16(2); // FF may be repeated before a kind
  }
  return null;
}

const ofFrame = (segment: DataView): Dimensions => ({
  width: segment.getUint16(7),
  height: segment.getUint16(5),
});

function ofBmp(bytes: DataView): Dimensions {
  if (bytes.getUint32(14, true) === 12) {
    return { width: bytes.getUint16(18, true), height: bytes.getUint16(20, true) };
  }
  // A height below 0 says that the first row is the upper one.
  return { width: bytes.getInt32(18, true), height: Math.abs(bytes.getInt32(22, true)) };
}

function ofWebp(bytes: DataView): Dimensions | null {
  const kind = text(bytes, 12, 4);
  if (kind === "VP8X") {
    return {
      width: 1 + (bytes.getUint32(24, true) & 0xffffff),
      height: 1 + (bytes.getUint32(26, true) >>> 8),
    };
  }
  if (kind === "VP8L") {
    const packed = bytes.getUint32(21, true);
    return { width: 1 + (packed & 0x3fff), height: 1 + ((packed >>> 14) & 0x3fff) };
  }
  if (kind !== "VP8 ") return null;
  return {
    width: bytes.getUint16(26, true) & 0x3fff,
    height: bytes.getUint16(28, true) & 0x3fff,
  };
}

/** The largest of AVIF's and HEIC's properties of this name: that of the whole, and those of tiles. */
function ofBoxes(bytes: DataView): Dimensions | null {
  let most: Dimensions | null = null;
  for (let at = 4; at + 16 <= bytes.byteLength; at++) {
    if (bytes.getUint32(at) !== 0x69737065) continue; // "ispe"
    const found = { width: bytes.getUint32(at + 8), height: bytes.getUint32(at + 12) };
    if (!most || found.width * found.height > most.width * most.height) most = found;
  }
  return most;
}

function text(bytes: DataView, at: number, length: number): string {
  return Array.from({ length }, (_, i) => String.fromCharCode(bytes.getUint8(at + i))).join("");
}
