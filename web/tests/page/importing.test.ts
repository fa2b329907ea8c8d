import "fake-indexeddb/auto";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { UserError } from "../../src/contract";
import { importInto, importLabeled } from "../../src/page/collect/importing";
import { Project } from "../../src/page/project";
import { Store } from "../../src/storage/store";

vi.mock("../../src/page/collect/prepare", () => ({
  preparePhoto: async (file: Blob) => {
    const digest = await file.text();
    if (digest === "no photo") throw new UserError("no photo");
    return { blob: file, thumbnail: file, digest };
  },
}));

let store: Store;
let project: Project;
let number = 0;
const watch = { signal: new AbortController().signal, progress: () => undefined };

beforeEach(async () => {
  store = await Store.open(`importing-${number++}`);
  project = await Project.open(store);
  vi.stubGlobal("navigator", {});
});
afterEach(() => void vi.unstubAllGlobals());

/** Files by their paths; the text is the photo. */
function given(...files: [path: string, text: string][]) {
  return files.map(([path, text]) => ({ path, open: () => Promise.resolve(new Blob([text])) }));
}

/** The photos of each class. */
async function kept(): Promise<Record<string, string[]>> {
  const found: Record<string, string[]> = {};
  for (const { id, name } of project.classes) {
    const photos = project.of(id).map(async (photo) => (await store.photo(photo.id)).text());
    found[name] = await Promise.all(photos);
  }
  return found;
}

describe("files of one path, as of two archives", () => {
  it("are all imported", async () => {
    const one = given(["cats/1.png", "a"], ["dogs/1.png", "b"]);
    const two = given(["cats/1.png", "c"], ["dogs/2.png", "d"]);
    const { added } = await importLabeled(project, [...one, ...two], watch);
    expect([added, await kept()]).toEqual([4, { cats: ["a", "c"], dogs: ["b", "d"] }]);
  });

  it("are refused where a table lists them", async () => {
    const table = given(["labels.csv", "file,label\n1.png,cats\n2.png,dogs\n"]);
    const photos = given(["1.png", "a"], ["2.png", "b"], ["1.png", "c"]);
    const importing = importLabeled(project, [...table, ...photos], watch);
    await expect(importing).rejects.toThrow("Two of the files are called 1.png");
    expect(project.count).toBe(0);
  });
});

it("a file that cannot be read is not taken for one that is no photo", async () => {
  const gone = { path: "2.png", open: () => Promise.reject(new Error("the file has gone")) };
  const { added, skipped } = await importInto(
    project,
    [1],
    [...given(["1.png", "a"]), gone],
    watch,
  );
  expect(added).toBe(1);
  const reason = "it could not be read (the file has gone); try it again";
  expect(skipped).toEqual([{ name: "2.png", reason }]);
});

describe("classes", () => {
  it("are made of folders that have photos", async () => {
    const files = given(["docs/a.md", "no photo"], ["cats/1.png", "a"], ["dogs/1.png", "b"]);
    const { added, skipped } = await importLabeled(project, files, watch);
    expect(await kept()).toEqual({ cats: ["a"], dogs: ["b"] });
    expect([added, skipped.map(({ name }) => name)]).toEqual([2, ["docs/a.md"]]);
  });

  it("are those from before where no file is a photo", async () => {
    const files = given(["docs/a.md", "no photo"], ["src/b.ts", "no photo"]);
    await importLabeled(project, files, watch);
    expect(await kept()).toEqual({ "Class 1": [], "Class 2": [] });
  });

  it("that are too many are told before anything is kept", async () => {
    const files = given(
      ...Array.from({ length: 1001 }, (_, i): [string, string] => [`${i}/1.png`, `${i}`]),
    );
    await expect(importLabeled(project, files, watch)).rejects.toThrow("room for 1,000 classes");
    expect(await kept()).toEqual({ "Class 1": [], "Class 2": [] });
  });

  it("are all attributes of a table, also those that no photo has", async () => {
    const table = given(["labels.csv", "file,red,big\n1.png,1,0\n2.png,0,0\n"]);
    const files = [...table, ...given(["1.png", "a"], ["2.png", "b"])];
    await importLabeled(project, files, watch);
    expect([await kept(), project.count]).toEqual([{ red: ["a"], big: [] }, 2]);
  });
});

describe("a copy of a photo", () => {
  it("of the same class is left out", async () => {
    const files = given(["cats/1.png", "a"], ["cats/2.png", "a"], ["dogs/1.png", "a"]);
    const { added, skipped } = await importLabeled(project, files, watch);
    expect([added, skipped.map(({ name }) => name)]).toEqual([2, ["cats/2.png"]]);
    const again = given(["cats/3.png", "a"], ["dogs/2.png", "b"]);
    expect((await importLabeled(project, again, watch)).added).toBe(1);
    expect(await kept()).toEqual({ cats: ["a"], dogs: ["a", "b"] });
  });

  it("gives the photo the attribute of a column", async () => {
    await project.setTask("attributes");
    await project.addClass();
    const added: number[] = [];
    for (const owners of [[], [1], [1], [3], []]) {
      const files = given(["1.png", "a"], ["2.png", "a"]);
      added.push((await importInto(project, owners, files, watch)).added);
    }
    expect(added).toEqual([1, 1, 0, 1, 0]);
    const both = await importInto(project, [2], given(["1.png", "a"], ["3.png", "b"]), watch);
    expect(both).toEqual({ added: 2, skipped: [] });
    expect(project.all().map(({ owners }) => owners)).toEqual([[1, 3, 2], [2]]);
    expect(await Project.open(store).then((again) => again.all())).toEqual(project.all());
  });

  it("that is not there changes no photo", async () => {
    await project.setTask("attributes");
    const tag = vi.spyOn(project, "tag");
    await importInto(project, [1], given(["1.png", "a"]), watch);
    expect(tag).not.toHaveBeenCalled();
    await importInto(project, [2], given(["1.png", "a"]), watch);
    expect(tag).toHaveBeenCalledTimes(1);
  });

  it("is kept where a table gives it other attributes", async () => {
    const table = given(["labels.csv", "file,red,big\n1.png,1,0\n2.png,0,1\n3.png,0,0\n"]);
    const files = given(["1.png", "a"], ["2.png", "a"], ["3.png", "a"]);
    const { added, skipped } = await importLabeled(project, [...table, ...files], watch);
    expect([added, skipped.map(({ name }) => name)]).toEqual([2, ["3.png"]]);
  });
});
