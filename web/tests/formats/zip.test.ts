import { describe, expect, it } from "vitest";
import { UserError } from "../../src/contract";
import { LIMITS, openZip, writeZip } from "../../src/formats/zip";
import { bytes, fixture, text } from "./fixtures";

const FILES = new Map([
  ["a.txt", bytes("hello")],
  ["ö/b.bin", new Uint8Array(5000).map((_, i) => (i * i) & 255)],
  ["empty", new Uint8Array()],
]);

const message = (read: () => unknown): string => {
  try {
    read();
  } catch (error) {
    expect(error).toBeInstanceOf(UserError);
    return (error as Error).message;
  }
  return "";
};

describe("archives", () => {
  it("come back as they were written", () => {
    const found = openZip(writeZip(FILES), "a.zip");
    expect([...found.keys()]).toEqual([...FILES.keys()]);
    for (const [name, content] of FILES) {
      expect(found.get(name)!.read()).toEqual(content);
      expect(found.get(name)!.size).toBe(content.length);
    }
    expect(writeZip(FILES)).toEqual(writeZip(FILES));
  });

  it("of Python are read, folders left out", () => {
    const found = openZip(fixture("run.zip"), "run.zip");
    expect([...found.keys()]).toContain("run/best.safetensors");
    expect([...found.keys()].every((name) => !name.endsWith("/"))).toBe(true);
    expect(text(found.get("run/manifest.json")!.read())).toContain('"schema"');
  });

  it("that are no archives or cut off are refused", () => {
    const zip = writeZip(FILES);
    for (const cut of [0, 10, zip.length / 2, zip.length - 1]) {
      expect(message(() => openZip(zip.subarray(0, cut), "a.zip"))).toMatch(
        /^a.zip is not a .zip, or is cut off/,
      );
    }
  });

  it("with any damaged byte give the same files or one sentence", () => {
    const zip = writeZip(FILES);
    for (let place = 0; place < zip.length; place += 3) {
      const damaged = zip.slice();
      damaged[place]! ^= 0xff;
      const found = message(() => {
        for (const [name, entry] of openZip(damaged, "a.zip")) {
          const own = FILES.get(name);
          if (own) expect(entry.read()).toEqual(own);
        }
      });
      expect(found).not.toContain("\n");
    }
  });

  it("are limited in their size, files and what they unpack to", () => {
    const zip = writeZip(FILES);
    const open = (limits: object) => message(() => openZip(zip, "a.zip", { ...LIMITS, ...limits }));
    expect(open({ archive: 100 })).toMatch(/bytes, more than can be opened here/);
    expect(open({ files: 2 })).toMatch(/has 3 files, more than can be opened here/);
    expect(open({ unpacked: 5000 })).toMatch(/unpacks to 5,005 bytes, more than/);
  });

  it("that unpack to far more than their bytes are refused before that", () => {
    const zip = writeZip(new Map([["best.safetensors", new Uint8Array(8 << 20)]]));
    expect(message(() => openZip(zip, "a.zip"))).toMatch(
      /^best.safetensors in a.zip unpacks [\d,]+ bytes to 8,388,608, which no file of a run does/,
    );
  });

  it("that say less than they hold are damaged", () => {
    const zip = writeZip(new Map([["a", new Uint8Array(9000).map((_, i) => (i * 7919) & 255)]]));
    const view = new DataView(zip.buffer);
    const place = zip.findLastIndex((_, i) => text(zip.subarray(i, i + 4)) === "PK\x01\x02");
    view.setUint32(place + 24, 100, true);
    expect(message(() => openZip(zip, "a.zip").get("a")!.read())).toMatch(/^a in a.zip is damaged/);
  });
});
