/** Folders and tables; tests/studio/test_labels.py reads the cases of labels.json in Python. */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { findLabels } from "../../src/page/collect/labels/find";
import { byFolders, inOrder, isOwn } from "../../src/page/collect/labels/layout";
import { isTable, readRows } from "../../src/page/collect/labels/rows";
import { readTable } from "../../src/page/collect/labels/tables";

interface Case {
  name: string;
  /** The text of each table; null for a photo. */
  files: Record<string, string | null>;
  attributes?: string[];
  labels?: Record<string, string[]>;
  parts?: Record<string, string>;
  refused?: string;
}

const CASES = JSON.parse(
  readFileSync(new URL("../fixtures/labels.json", import.meta.url), "utf8"),
) as Case[];

const labelsOf = (files: Case["files"]) =>
  findLabels(Object.keys(files), (path) => readTable(path, new Blob([files[path]!])));

it("a table that is too large is refused before it is read", async () => {
  const table = { size: 129 << 20 } as Blob;
  const said = "labels.csv is larger than the 128 MB that a table may have; divide it.";
  await expect(readTable("labels.csv", table)).rejects.toThrow(said);
});

describe("labels are read as on the command line:", () => {
  it.each(CASES)("$name", async ({ files, attributes, labels, parts, refused }) => {
    if (refused !== undefined) {
      await expect(labelsOf(files)).rejects.toThrow(refused);
      return;
    }
    const found = (await labelsOf(files))!;
    expect(found.task).toBe(attributes ? "attributes" : "classification");
    if (attributes) expect(found.classes).toEqual(attributes);
    const byPath = found.labeled.map((each) => [each.path, each.labels]);
    expect(Object.fromEntries(byPath)).toEqual(labels);
    const divided = found.labeled.flatMap(({ path, part }) => (part ? [[path, part]] : []));
    const asCalled = Object.entries(parts ?? {}).map(([path, part]) => [
      path,
      part === "val" ? "validation" : part,
    ]);
    expect(Object.fromEntries(divided)).toEqual(Object.fromEntries(asCalled));
  });
});

function found(paths: string[]) {
  return byFolders(paths).labeled.map((each) => [each.path, each.labels[0], each.part]);
}

describe("class folders", () => {
  it("are the classes, at any depth", () => {
    expect(found(["cats/1.jpg", "dogs/old/2.jpg"])).toEqual([
      ["cats/1.jpg", "cats", null],
      ["dogs/old/2.jpg", "dogs", null],
    ]);
  });
  it("may lie in one folder, which is no class", () => {
    expect(found(["pets/cats/1.jpg", "pets/dogs/2.jpg"]).map((each) => each[1])).toEqual([
      "cats",
      "dogs",
    ]);
  });
  it("may be a single class", () => {
    expect(found(["cats/1.jpg"])).toEqual([["cats/1.jpg", "cats", null]]);
  });
  it("may be divided", () => {
    expect(found(["train/a/1.jpg", "Val/a/2.jpg", "test/a/3.jpg"])).toEqual([
      ["train/a/1.jpg", "a", "train"],
      ["Val/a/2.jpg", "a", "validation"],
    ]);
    expect(found(["Training/a/1.jpg", "test/a/3.jpg"])).toEqual([
      ["Training/a/1.jpg", "a", "train"],
    ]);
  });
  it("may be called train where nothing is divided", () => {
    expect(found(["train/1.jpg", "plane/2.jpg"]).map((each) => each[1])).toEqual([
      "train",
      "plane",
    ]);
  });
  it("leave out what lies beside them", () => {
    const paths = (given: string[]) => found(given).map(([path]) => path);
    expect(paths(["a/1.jpg", "notes.jpg", "b/2.jpg"])).toEqual(["a/1.jpg", "b/2.jpg"]);
    expect(paths(["train/a/1.jpg", "other/a/1.jpg"])).toEqual(["train/a/1.jpg"]);
  });
  it("have composed accents", () => {
    expect(found(["rose\u0301/1.jpg"])[0]![1]).toBe("ros\u00e9");
  });
});

describe("tables", () => {
  it("list photos of which some must have been given", async () => {
    const files = { "list.csv": "file,label\nz.jpg,cat\n", "a.jpg": null };
    await expect(labelsOf(files)).rejects.toThrow("None of the files that list.csv lists");
  });
  it("that are several are not read", async () => {
    const files = { "one.csv": "file,label\n", "two.csv": "file,label\n", "p/a.jpg": null };
    expect(await labelsOf(files)).toBeNull();
  });
  it("are in UTF-8", async () => {
    const file = new Blob([new Uint8Array([0x66, 0xff, 0xfe])]);
    await expect(readTable("x.csv", file)).rejects.toThrow("x.csv is not a table in UTF-8");
  });
  it("number their lines, of which some are blank or in one cell", () => {
    const rows = readRows('\uFEFFfile,label\r\n\r\n"a\n1",b\rc\td\n', "x.csv");
    expect(rows.map(({ line }) => line)).toEqual([1, 4, 5]);
    expect(readRows("file\tlabel\na\tb", "x.tsv")[1]!.cells).toEqual(["a", "b"]);
  });
  it.each([
    ["file,,b\na.jpg,1,1", "has no title over column 2"],
    ["file,a,b\na.jpg,2,0", "has “2” for “a” in line 2"],
    ["file,a\na.jpg,1,1", "more values than titles in line 2"],
    ["file,a\na.jpg,0\nb.jpg,-1", "has both 0 and -1"],
    ["file\na.jpg", "needs the columns"],
  ])("of attributes as %j are refused", async (text, said) => {
    const files = { "list.csv": text, "a.jpg": null, "b.jpg": null };
    await expect(labelsOf(files)).rejects.toThrow(said);
  });
});

it("knows what is the user's own", () => {
  expect(["a/.x.jpg", "__MACOSX/a.jpg", "a/Thumbs.db", "a/b.jpg"].filter(isOwn)).toEqual([
    "a/b.jpg",
  ]);
  expect(["list.CSV", "a.tsv", "csv.jpg"].filter(isTable)).toEqual(["list.CSV", "a.tsv"]);
});

it("orders classes as the command line does", () => {
  expect(inOrder(["b", "a", "b"])).toEqual(["a", "b"]);
  expect(inOrder(["10", "9", "1"])).toEqual(["1", "9", "10"]);
  expect(inOrder(["10", "9", "x"])).toEqual(["10", "9", "x"]);
});
