/** The .zip of all photos. */
import { describe, expect, it } from "vitest";
import { openZip } from "../../src/formats/zip";
import { pathsOf, photosFile } from "../../src/page/take/photos";
import type { Project } from "../../src/page/project";

/** Photos of one class by their names, and the bytes of each. */
function projectOf(names: string[], blob: Partial<Blob> = new Blob(["photo"])): Project {
  const photos = names.map((name, i) => {
    return { id: i + 1, name, owners: [1], part: null, recording: 0 };
  });
  return {
    task: "classification",
    isTagged: false,
    classes: [{ id: 1, name: "cats" }],
    count: photos.length,
    all: () => photos,
    of: () => photos,
    store: { photo: () => Promise.resolve(blob) },
  } as unknown as Project;
}

describe("the .zip of photos", () => {
  it("has room for 4 GB, and reads none of a photo beyond them", async () => {
    let read = 0;
    const large = {
      size: 1.5e9,
      arrayBuffer: async () => {
        read += 1;
        return new ArrayBuffer(1);
      },
    };
    expect(await photosFile(projectOf(["1.jpg", "2.jpg"], large))).not.toEqual([]);
    const project = projectOf(["1.jpg", "2.jpg", "3.jpg"], large);
    await expect(photosFile(project)).rejects.toThrow("has room for 4 GB of photos");
    expect(read).toBe(4);
  });

  it("is passed on in a few parts, however many photos it has", async () => {
    const names = Array.from({ length: 300 }, (_, i) => `${i}.jpg`);
    const parts = await photosFile(projectOf(names, new Blob([new Uint8Array(50_000)])));
    expect(parts.filter((part) => part instanceof Blob).length).toBeLessThan(5);
    const zip = new Uint8Array(await new Blob(parts).arrayBuffer());
    expect(openZip(zip, "photos.zip").size).toBe(300);
  });

  it("has names that are different where capitals are not told apart", () => {
    expect([...pathsOf(projectOf(["a.jpg", "A.JPG", "b.jpg"])).keys()]).toEqual([
      "cats/a.jpg",
      "cats/2-A.JPG",
      "cats/b.jpg",
    ]);
  });
});
