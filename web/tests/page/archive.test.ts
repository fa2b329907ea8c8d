import { strToU8, zipSync } from "fflate";
import { describe, expect, it } from "vitest";
import { openArchive } from "../../src/page/collect/archive";

const text = "a photo ".repeat(200);
const packed = zipSync({
  "cats/ä.jpg": strToU8(text),
  "dogs/2.jpg": [strToU8("stored"), { level: 0 }],
  dogs: {},
});

function changed(at: number, value: number): Blob {
  const copy = packed.slice();
  copy[at] = value;
  return new Blob([copy]);
}

function find(signature: number): number {
  const data = new DataView(packed.buffer, packed.byteOffset, packed.byteLength);
  for (let i = 0; ; i++) if (data.getUint32(i, true) === signature) return i;
}

describe("an archive", () => {
  it("lists its files and unpacks what is asked for", async () => {
    const members = await openArchive(new Blob([packed]), "photos.zip");
    expect(members.map((each) => [each.path, each.bytes])).toEqual([
      ["cats/ä.jpg", text.length],
      ["dogs/2.jpg", 6],
    ]);
    expect(await (await members[0]!.open()).text()).toBe(text);
    expect(await (await members[1]!.open()).text()).toBe("stored");
  });

  it("has paths without detours, whatever the packer wrote", async () => {
    const paths = ["./", "./cats/", "./cats/1.jpg", "dogs/.//2.jpg", "birds\\x\\..\\3.jpg"];
    const zip = zipSync(Object.fromEntries(paths.map((path) => [path, strToU8("x")])));
    const members = await openArchive(new Blob([zip]), "a.zip");
    expect(members.map(({ path }) => path)).toEqual(["cats/1.jpg", "dogs/2.jpg", "birds/3.jpg"]);
    expect(await (await members[0]!.open()).text()).toBe("x");
  });

  it("has names in code page 437 where they are not in UTF-8 and do not say so", async () => {
    const flags = find(0x02014b50) + 9;
    const named = async (...bytes: number[]) => {
      const copy = packed.slice();
      copy[flags]! &= ~8;
      copy.set(bytes, flags + 37 + "cats/".length); // in place of ä
      return (await openArchive(new Blob([copy]), "a.zip"))[0]!.path;
    };
    expect(await named(0xc3, 0xa4)).toBe("cats/ä.jpg");
    expect([await named(0x80, 0xff), await named(0x81, 0xff)]).toEqual([
      "cats/Ç\xa0.jpg",
      "cats/ü\xa0.jpg",
    ]);
  });

  it("with a name that is not as it says is damaged", async () => {
    const name = find(0x02014b50) + 46 + "cats/".length;
    await expect(openArchive(changed(name, 0xff), "a.zip")).rejects.toThrow("a.zip is damaged");
  });

  it("may have a comment or something before it", async () => {
    const comment = packed.slice();
    comment[comment.length - 2] = 3;
    const members = await openArchive(new Blob([comment, "abc"]), "photos.zip");
    expect(members).toHaveLength(2);
  });

  it.each([new Blob([]), new Blob(["no archive"]), new Blob([packed.slice(0, -30)])])(
    "that is none is refused",
    async (blob) => {
      await expect(openArchive(blob, "a.zip")).rejects.toThrow("a.zip is not a .zip");
    },
  );

  it("that is damaged says where", async () => {
    const directory = find(0x02014b50);
    await expect(openArchive(changed(directory, 0), "a.zip")).rejects.toThrow("a.zip is damaged");
    await expect(openArchive(changed(directory + 8, 1), "a.zip")).rejects.toThrow("is encrypted");
    const [first] = await openArchive(changed(directory + 24, 9), "a.zip"); // claims fewer bytes
    await expect(first!.open()).rejects.toThrow("cats/ä.jpg in a.zip is damaged");
    const [odd] = await openArchive(changed(directory + 10, 12), "a.zip");
    await expect(odd!.open()).rejects.toThrow("packed in a way that is not read");
    const [head] = await openArchive(changed(0, 0), "a.zip");
    await expect(head!.open()).rejects.toThrow("is damaged");
  });

  it("of the kind ZIP64 is refused, whichever number is elsewhere", async () => {
    const [directory, end] = [find(0x02014b50), find(0x06054b50)];
    for (const at of [directory + 20, directory + 24, directory + 42, end + 12, end + 16]) {
      const copy = packed.slice().fill(0xff, at, at + 4);
      await expect(openArchive(new Blob([copy]), "a.zip")).rejects.toThrow("of the kind ZIP64");
    }
    const many = packed.slice().fill(0xff, end + 10, end + 12);
    await expect(openArchive(new Blob([many]), "a.zip")).rejects.toThrow("of the kind ZIP64");
  });

  it("never throws anything else, whatever one byte is", async () => {
    for (let at = 0; at < packed.length; at++) {
      try {
        for (const member of await openArchive(changed(at, packed[at]! ^ 0xff), "a.zip")) {
          await member.open();
        }
      } catch (error) {
        expect((error as Error).name).toBe("UserError");
      }
    }
  });
});
