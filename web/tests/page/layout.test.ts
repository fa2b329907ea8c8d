import { describe, expect, it } from "vitest";
import { byFolders, byTable, inOrder, isOwn, isTable } from "../../src/page/collect/layout";
import { parseTable } from "../../src/page/collect/table";

function found(paths: string[]) {
  const { labeled, outside } = byFolders(paths);
  return { labels: labeled.map((each) => [each.path, each.labels[0], each.part]), outside };
}

describe("class folders", () => {
  it("are the classes, at any depth", () => {
    expect(found(["cats/1.jpg", "dogs/old/2.jpg"]).labels).toEqual([
      ["cats/1.jpg", "cats", null],
      ["dogs/old/2.jpg", "dogs", null],
    ]);
  });
  it("may lie in one folder, which is no class", () => {
    expect(found(["pets/cats/1.jpg", "pets/dogs/2.jpg"]).labels.map((each) => each[1])).toEqual([
      "cats",
      "dogs",
    ]);
  });
  it("may be a single class", () => {
    expect(found(["cats/1.jpg"]).labels).toEqual([["cats/1.jpg", "cats", null]]);
  });
  it("may be divided", () => {
    expect(found(["train/a/1.jpg", "Val/a/2.jpg", "test/a/3.jpg"]).labels).toEqual([
      ["train/a/1.jpg", "a", "train"],
      ["Val/a/2.jpg", "a", "validation"],
    ]);
    expect(found(["Training/a/1.jpg", "test/a/3.jpg"]).labels).toEqual([
      ["Training/a/1.jpg", "a", "train"],
    ]);
  });
  it("may be called train where nothing is divided", () => {
    expect(found(["train/1.jpg", "plane/2.jpg"]).labels.map((each) => each[1])).toEqual([
      "train",
      "plane",
    ]);
  });
  it("leave out what lies beside them", () => {
    expect(found(["a/1.jpg", "notes.jpg", "b/2.jpg"]).outside).toEqual(["notes.jpg"]);
    expect(found(["train/a/1.jpg", "other/a/1.jpg"]).outside).toEqual(["other/a/1.jpg"]);
  });
  it("have composed accents", () => {
    expect(found(["rose\u0301/1.jpg"]).labels[0]![1]).toBe("ros\u00e9");
  });
});

describe("tables", () => {
  const paths = ["x/a.jpg", "x/b.jpg", "x/c.jpg", "x/list.csv"];
  it("name files and labels, relative to themselves", () => {
    const read = byTable("file,label\na.jpg,cat\n./b.jpg,dog\n", "x/list.csv", paths);
    expect(read.labeled).toEqual([
      { path: "x/a.jpg", labels: ["cat"], part: null },
      { path: "x/b.jpg", labels: ["dog"], part: null },
    ]);
    expect(read.outside).toEqual(["x/c.jpg"]);
  });
  it("may have a split, other columns and no titles", () => {
    const text = "Split;note;Path;Class\ntrain;;a.jpg;cat\nval;x;b.jpg;dog\ntest;;c.jpg;dog\n";
    expect(byTable(text, "x/list.csv", paths).labeled.map((each) => each.part)).toEqual([
      "train",
      "validation",
    ]);
    expect(byTable("a.jpg,cat\nb.jpg,dog", "x/list.csv", paths).labeled).toHaveLength(2);
  });
  it.each([
    ["", "is empty"],
    ["name,kind\n", "needs the columns file and label"],
    ["file,label\na.jpg,\n", "has no label in row 2"],
    ["file,label\n,cat\n", "has no file in row 2"],
    ["file,label,split\na.jpg,cat,dev\n", "has the split “dev” in row 2"],
    ["file,label\na.jpg,cat\na.jpg,dog\n", "lists a.jpg twice"],
    ["file,label\nz.jpg,cat\n", "None of the files"],
  ])("of %j are refused", (text, said) => {
    expect(() => byTable(text, "x/list.csv", paths)).toThrow(said);
  });
  it("without a label have attributes", () => {
    const text = "file,split,smiling,Hat\na.jpg,train,1,0\nb.jpg,val,1,1\nc.jpg,test,0,0\n";
    expect(byTable(text, "x/list.csv", paths)).toMatchObject({
      task: "attributes",
      classes: ["smiling", "Hat"],
      labeled: [
        { path: "x/a.jpg", labels: ["smiling"], part: "train" },
        { path: "x/b.jpg", labels: ["smiling", "Hat"], part: "validation" },
      ],
    });
    const other = byTable("image;a\na.jpg;-1\nb.jpg;1", "x/list.csv", paths);
    expect(other.labeled.map((each) => each.labels)).toEqual([[], ["a"]]);
  });
  it("of CelebA are read as they are", () => {
    const text = "2\nSmiling Young\na.jpg  1 -1\nb.jpg -1 -1\n";
    expect(isTable("x/list_attr_celeba.txt")).toBe(true);
    const read = byTable(text, "x/list_attr_celeba.txt", paths);
    expect(read.classes).toEqual(["Smiling", "Young"]);
    expect(read.labeled.map((each) => each.labels)).toEqual([["Smiling"], []]);
  });
  it.each([
    ["file,a,a\n", "has two columns “a”"],
    ["file,,b\n", "has no title over column 2"],
    ["file,a\na.jpg,2\n", "has “2” for “a” in row 2"],
    ["file,a\na.jpg,\n", "has no value for “a” in row 2"],
    ["file,a\na.jpg,1,1\n", "more values than titles in row 2"],
    ["file,a\na.jpg,0\nb.jpg,-1\n", "has both 0 and -1"],
    ["file,a\na.jpg,0\na.jpg,1\n", "lists a.jpg twice"],
    ["file,mask\na.jpg,m.png\n", "needs the columns file and label, or file and a column for"],
    ["file\na.jpg\n", "needs the columns"],
  ])("of attributes as %j are refused", (text, said) => {
    expect(() => byTable(text, "x/list.csv", paths)).toThrow(said);
  });
  it("quote what they must", () => {
    expect(parseTable('\uFEFFfile,label\r\n"a,1.jpg","say ""cat"""\r\n\r\nb.jpg , dog')).toEqual([
      ["file", "label"],
      ["a,1.jpg", 'say "cat"'],
      ["b.jpg", "dog"],
    ]);
    expect(parseTable("file\tlabel\na\tb")[1]).toEqual(["a", "b"]);
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
