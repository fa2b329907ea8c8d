import { describe, expect, it, vi } from "vitest";
import { dimensionsOf } from "../../src/page/collect/dimensions";

/** The first bytes of files of 300 x 200 pixels, as Pillow writes them. */
const FILES = {
  PNG: "89504e470d0a1a0a0000000d494844520000012c000000c8",
  JPEG:
    "ffd8ffe000104a46494600010100000100010000ffdb004300080606070605080707070909080a0c140d0c0b" +
    "0b0c1912130f141d1a1f1e1d1a1c1c20242e2720222c231c1c2837292c30313434341f27393d38323c2e3334" +
    "32ffdb0043010909090c0b0c180d0d1832211c21323232323232323232323232323232323232323232323232" +
    "3232323232323232323232323232323232323232323232323232ffc000110800c8012c03",
  "progressive JPEG":
    "ffd8ffe000104a46494600010100000100010000ffdb004300080606070605080707070909080a0c140d0c0b" +
    "0b0c1912130f141d1a1f1e1d1a1c1c20242e2720222c231c1c2837292c30313434341f27393d38323c2e3334" +
    "32ffdb0043010909090c0b0c180d0d1832211c21323232323232323232323232323232323232323232323232" +
    "3232323232323232323232323232323232323232323232323232ffc200110800c8012c03",
  GIF: "4749463837612c01c800",
  BMP: "424d56bf02000000000036000000280000002c010000c800000001001800",
  "BMP from above": "424d56bf02000000000036000000280000002c01000038ffffff01001800",
  WebP: "52494646ac0000005745425056503820a00000007010009d012a2c01c800",
  "lossless WebP": "5249464624000000574542505650384c180000002f2bc1310007508316f4",
  "WebP with more": "52494646c800000057454250565038580a000000080000002b0100c70000",
  AVIF:
    "00000020667479706176696600000000617669666d6966316d6961664d413142000000eb6d65746100000000" +
    "0000002168646c72000000000000000070696374000000000000000000000000000000000e7069746d000000" +
    "0000010000001e696c6f63000000004400000100010000000100000113000000490000002869696e66000000" +
    "0000010000001a696e6665020000000001000061763031436f6c6f72000000006a697072700000004b697063" +
    "6f0000001469737065000000000000012c000000c8",
};
const WIDE = { width: 300, height: 200 };

const of = (hexadecimal: string) => dimensionsOf(new Blob([Buffer.from(hexadecimal, "hex")]));

describe("the size of a photo", () => {
  it.each(Object.entries(FILES))(
    "of the kind %s is read from its first bytes",
    async (_, bytes) => {
      expect(await of(bytes)).toEqual(WIDE);
    },
  );

  it("is known of a JPEG by one read of its file", async () => {
    const file = new Blob([Buffer.from(FILES["JPEG"], "hex")]);
    const reads = vi.spyOn(file, "slice");
    expect(await dimensionsOf(file)).toEqual(WIDE);
    expect(reads).toHaveBeenCalledOnce();
  });

  it("is read from a JPEG behind a long color profile", async () => {
    const jpeg = Buffer.from(FILES["JPEG"], "hex");
    const profile = Buffer.alloc(2 + 65_535);
    profile.set([0xff, 0xe2, 0xff, 0xff]);
    const long = Buffer.concat([jpeg.subarray(0, 2), profile, profile, jpeg.subarray(2)]);
    expect(await dimensionsOf(new Blob([long]))).toEqual(WIDE);
  });

  it.each(Object.entries(FILES))("of the kind %s is not guessed from a part", async (_, bytes) => {
    for (let length = 0; length < bytes.length; length += 2) {
      const found = await of(bytes.slice(0, length));
      if (found) expect(found).toEqual(WIDE);
    }
  });

  it("is not known of other files", async () => {
    const texts = ["", "B", "hello", "II*\0 a TIFF", "P6 9 9 255 a PPM", "RIFF0000WAVE"];
    for (const text of texts) expect(await dimensionsOf(new Blob([text]))).toBeNull();
    expect(await of("ffd8ffd90000000000000000")).toBeNull();
  });
});
