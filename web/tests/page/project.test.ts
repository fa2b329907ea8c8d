import "fake-indexeddb/auto";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { readRows } from "../../src/page/collect/labels/rows";
import { byTables } from "../../src/page/collect/labels/tables";
import type { PhotoEntry } from "../../src/contract";
import { NONE, Project } from "../../src/page/project";
import { partsOf, pathsOf, tableOf } from "../../src/page/take/photos";
import { divide } from "../../src/page/train/division";
import { Store } from "../../src/storage/store";

let store: Store;
let project: Project;
let number = 0;
const persist = vi.fn(() => Promise.resolve(true));

beforeEach(async () => {
  store = await Store.open(`project-${number++}`);
  project = await Project.open(store);
  vi.stubGlobal("navigator", { storage: { persist } });
});
afterEach(() => {
  vi.unstubAllGlobals();
  persist.mockClear();
});

function photo(name: string, owner: number, recording = 0) {
  return tagged(name, [owner], recording);
}

function tagged(name: string, owners: number[], recording = 0) {
  const blob = new Blob([name]);
  return { name, owners, part: null, recording, blob, thumbnail: blob };
}

const names = (of = project) => of.classes.map(({ name }) => name);

describe("a project", () => {
  it("begins with two classes, and is the same when it is opened again", async () => {
    expect(names()).toEqual(["Class 1", "Class 2"]);
    await project.rename(1, "  cats ");
    await project.add([photo("a", 1), photo("b", 2)]);
    const again = await Project.open(store);
    expect(names(again)).toEqual(["cats", "Class 2"]);
    expect(again.all()).toEqual(project.all());
  });

  it("asks the browser once not to delete the photos", async () => {
    await project.add([photo("a", 1)]);
    await project.add([photo("b", 1)]);
    expect(persist).toHaveBeenCalledTimes(1);
  });

  it("loses no change of several at once", async () => {
    await Promise.all([
      project.rename(1, "cats"),
      project.add([photo("a", 1)]),
      project.addClass("dogs"),
      project.rename(2, "birds"),
      project.chooseKit("abc"),
    ]);
    expect(names()).toEqual(["cats", "birds", "dogs"]);
    const again = await Project.open(store);
    expect([names(again), again.kit, again.count]).toEqual([names(), "abc", 1]);
  });

  it("is as it was where it cannot be saved", async () => {
    vi.spyOn(store, "saveProject").mockRejectedValue(new Error("no room"));
    await expect(project.setTask("attributes")).rejects.toThrow("no room");
    await expect(project.addClass()).rejects.toThrow("no room");
    expect([project.task, names()]).toEqual(["classification", ["Class 1", "Class 2"]]);
  });

  it("has the kit that was chosen, also where it cannot be saved", async () => {
    vi.spyOn(store, "saveProject").mockRejectedValue(new Error("no room"));
    await expect(project.chooseKit("abc")).rejects.toThrow("no room");
    expect(project.kit).toBe("abc");
  });

  it("has the kit that was chosen before what else changes is saved", async () => {
    const saving = [project.add([photo("a", 1)]), project.chooseKit("abc")];
    expect(project.kit).toBe("abc");
    await Promise.all(saving);
    expect((await Project.open(store)).kit).toBe("abc");
  });

  it("keeps the kit of another task over one that was chosen before the task was saved", async () => {
    project.onChange(() => {
      if (project.isTagged) project.kit = "of attributes";
    });
    await Promise.all([project.setTask("attributes"), project.chooseKit("of classes")]);
    expect(project.kit).toBe("of attributes");
    expect((await Project.open(store)).kit).toBe("of attributes");
  });

  it("keeps photos that never had a class", async () => {
    await store.add([tagged("a", []), photo("lost", 7)]);
    await Project.open(store);
    expect((await store.photos()).map(({ name }) => name)).toEqual(["a"]);
  });

  it("has no two classes of one name", async () => {
    await expect(project.rename(1, "Class 2")).rejects.toThrow("“Class 2” is there already");
    await expect(project.rename(1, " ")).rejects.toThrow("A name is needed");
    await expect(project.addClass("x".repeat(201))).rejects.toThrow("at most 200");
    const both = await Promise.allSettled([project.addClass("a"), project.addClass("a")]);
    expect(both.map((each) => each.status)).toEqual(["fulfilled", "rejected"]);
    await project.removeClass(1);
    expect((await project.addClass()).name).toBe("Class 3");
  });

  it("has names that files can have, cut between two characters", async () => {
    for (const strange of ["men\u0092s", "a\u202eb", "half \ud83d"]) {
      await expect(project.rename(1, strange)).rejects.toThrow(/\ufffd.* cannot be shown; rename/);
      await expect(project.classesNamed([strange], [])).rejects.toThrow("cannot be shown");
    }
    const cats = "\u{1f431}".repeat(201);
    await expect(project.rename(1, cats)).rejects.toThrow("at most 200");
    await project.classesNamed([cats], []);
    expect(names()).toEqual(["Class 1", "Class 2", "\u{1f431}".repeat(200)]);
  });

  it("moves and deletes photos, and tells so", async () => {
    let told = 0;
    project.onChange(() => told++);
    const [a, b, c] = await project.add([photo("a", 1), photo("b", 1), photo("c", 2)]);
    await project.move(new Set([a!.id]), 2);
    expect(project.of(2).map(({ name }) => name)).toEqual(["a", "c"]);
    await project.remove(new Set([c!.id]));
    expect(project.all().map(({ id }) => id)).toEqual([a!.id, b!.id]);
    expect(told).toBe(3);
    await project.removeClass(1);
    expect((await store.photos()).map(({ name }) => name)).toEqual(["a"]);
  });

  it("shows how many photos are left while many are deleted, as of a class that is gone", async () => {
    await project.add(Array.from({ length: 250 }, (_, i) => photo(`${i}`, 1)));
    const seen: number[][] = [];
    project.onChange(() => seen.push([project.classes.length, project.count]));
    await project.removeClass(1);
    expect(seen).toEqual([250, 150, 50, 0].map((count) => [1, count]));
    expect(await store.photos()).toEqual([]);
  });

  it("keeps no photos of a class that is gone", async () => {
    await store.add([photo("lost", 7)]);
    await project.add([photo("a", 1), photo("b", 2)]);
    await project.removeClass(2);
    expect(await project.add([photo("c", 2), photo("d", 1)])).toHaveLength(1);
    expect(project.all().map(({ name }) => name)).toEqual(["a", "d"]);
    await Project.open(store);
    expect((await store.photos()).map(({ name }) => name)).toEqual(["a", "d"]);
  });

  it("keeps no photo that is being added while its class is deleted", async () => {
    await project.add([photo("a", 1)]);
    await Promise.all([project.add([photo("b", 2)]), project.removeClass(2)]);
    expect(project.all().map(({ name }) => name)).toEqual(["a"]);
    expect((await store.photos()).map(({ name }) => name)).toEqual(["a"]);
  });

  it("gives no class the id of one that was deleted, also when it is opened again", async () => {
    await project.removeClass(2);
    expect((await project.addClass()).id).toBe(3);
    await project.removeClass(3);
    expect((await Project.open(store).then((again) => again.addClass())).id).toBe(4);
    await project.forget();
    expect(await project.add([photo("of a forgotten class", 1)])).toEqual([]);
  });

  it("goes on after the classes of an earlier version", async () => {
    await store.saveProject({ task: "classification", classes: [{ id: 7, name: "a" }], kit: null });
    expect((await Project.open(store).then((again) => again.addClass())).id).toBe(8);
  });

  it("moves no photo into a class that is gone", async () => {
    const [a] = await project.add([photo("a", 1)]);
    const ids = new Set([a!.id]);
    const both = await Promise.allSettled([project.removeClass(2), project.move(ids, 2)]);
    expect(both.map((each) => each.status)).toEqual(["fulfilled", "rejected"]);
    await expect(project.move(ids, 2)).rejects.toThrow("This class was deleted meanwhile");
    expect([project.of(1), await store.photos()]).toEqual([[a], [a]]);
    await project.setTask("attributes");
    await expect(project.tag(ids, 2, true)).rejects.toThrow("This attribute was deleted");
    expect(await store.photos()).toEqual([a]);
  });

  it("moves no photo that is being deleted", async () => {
    const added = await project.add([photo("a", 1), photo("b", 1)]);
    const ids = new Set(added.map(({ id }) => id));
    await Promise.all([project.remove(new Set([added[0]!.id])), project.move(ids, 2)]);
    expect(project.all().map(({ name, owners }) => [name, owners])).toEqual([["b", [2]]]);
    expect(await Project.open(store).then((again) => again.all())).toEqual(project.all());
  });

  it("makes classes in place of those that were never used", async () => {
    const { unused } = project;
    await project.rename(1, "cats");
    await project.addClass();
    expect(await project.classesNamed(["dogs", "cats", "birds"], unused)).toEqual([4, 1, 5]);
    expect(names()).toEqual(["cats", "Class 3", "dogs", "birds"]);
    await project.add([photo("a", 3)]);
    expect(await project.classesNamed(["x".repeat(201)], project.classes.slice(1))).toEqual([6]);
    expect(names()).toEqual(["cats", "Class 3", "x".repeat(200)]);
  });

  it("makes no class if there is no room for all", async () => {
    const many = Array.from({ length: 1000 }, (_, i) => `${i}`);
    await expect(project.classesNamed(many, [])).rejects.toThrow("room for 1,000 classes");
    expect(names()).toEqual(["Class 1", "Class 2"]);
    let told = 0;
    project.onChange(() => told++);
    await project.classesNamed(many, project.unused);
    expect([project.classes.length, told]).toEqual([1000, 1]);
  });

  it("can be trained once two classes have photos", async () => {
    await project.add([photo("a", 1), photo("b", 1)]);
    await project.addClass("empty");
    expect(project.canTrain).toBe(false);
    await project.add([photo("c", 3)]);
    expect(project.canTrain).toBe(true);
    expect(project.filled.map(({ name }) => name)).toEqual(["Class 1", "empty"]);
  });

  it("counts recordings on", async () => {
    await project.add([photo("a", 1, 4)]);
    expect(project.nextRecording()).toBe(5);
  });

  it("forgets everything", async () => {
    await project.rename(1, "cats");
    await project.add([photo("a", 1)]);
    await project.forget();
    expect([names(), project.count, await store.photos()]).toEqual([["Class 1", "Class 2"], 0, []]);
    await project.setTask("attributes");
    expect(names()).toEqual(["Attribute 1", "Attribute 2"]);
  });
});

describe("attributes", () => {
  beforeEach(async () => {
    await project.setTask("attributes");
  });

  it("are of photos that have several, or none", async () => {
    expect(names()).toEqual(["Attribute 1", "Attribute 2"]);
    const [both, none] = await project.add([tagged("a", [1, 2]), tagged("b", [])]);
    expect([1, 2, NONE].map((id) => project.of(id).map(({ name }) => name))).toEqual([
      ["a"],
      ["a"],
      ["b"],
    ]);
    expect(project.count).toBe(2);
    await project.tag(new Set([none!.id]), 1, true);
    await project.tag(new Set([both!.id, none!.id]), 2, false);
    const again = await Project.open(store);
    expect(again.task).toBe("attributes");
    expect(again.all().map(({ owners }) => owners)).toEqual([[1], [1]]);
    expect(again.of(NONE)).toEqual([]);
  });

  it("are not of photos that are being added while they are deleted", async () => {
    await project.add([photo("a", 2)]);
    await Promise.all([project.add([tagged("b", [1, 2])]), project.removeClass(2)]);
    expect(project.all().map(({ owners }) => owners)).toEqual([[], [1]]);
    expect(await Project.open(store).then((again) => again.all())).toEqual(project.all());
  });

  it("leave their photos when they are deleted", async () => {
    await project.add([tagged("a", [1, 2]), tagged("b", [2])]);
    await project.removeClass(2);
    expect(project.all().map(({ owners }) => owners)).toEqual([[1], []]);
    expect(await Project.open(store).then((again) => again.all())).toEqual(project.all());
  });

  it("can be trained once photos differ in one", async () => {
    await project.add([tagged("a", [1])]);
    expect(project.canTrain).toBe(false);
    await project.add([tagged("b", [])]);
    expect(project.canTrain).toBe(true);
  });

  it("are of no photo that comes once each is to have a class", async () => {
    await project.setTask("classification");
    for (const owners of [[], [1, 2]]) {
      await expect(project.add([tagged("a", owners)])).rejects.toThrow("have attributes");
    }
    expect([project.count, await store.photos()]).toEqual([0, []]);
  });

  it("become classes where each photo has one", async () => {
    const [both] = await project.add([tagged("a", [1, 2]), tagged("b", [2])]);
    await expect(project.setTask("classification")).rejects.toThrow("1 photo has several");
    await project.tag(new Set([both!.id]), 1, false);
    await project.setTask("classification");
    expect(project.of(2)).toHaveLength(2);
    expect(names()).toEqual(["Class 1", "Attribute 2"]);
  });

  it("have names that a table can have", async () => {
    await expect(project.rename(1, "Label")).rejects.toThrow("could not have an attribute “Label”");
    await project.setTask("classification");
    await project.rename(1, "image id");
    await expect(project.setTask("attributes")).rejects.toThrow("image id");
  });

  it("are packed as a table with its photos", async () => {
    await project.rename(1, 'say "hi"');
    await project.add([tagged("x/a.jpg", [1, 2]), tagged("y/a.jpg", [])]);
    const rows = () => tableOf(project, pathsOf(project), partsOf(project)).split("\n");
    expect(rows()).toEqual([
      'file,"say ""hi""",Attribute 2',
      "photos/a.jpg,1,1",
      "photos/2-a.jpg,0,0",
      "",
    ]);
    await project.add([{ ...tagged("v,w.jpg", [2]), part: "validation" as const }]);
    expect(rows().at(0)).toBe('file,split,"say ""hi""",Attribute 2');
    expect(rows().at(3)).toBe('"photos/v,w.jpg",val,0,1');
    const paths = [...pathsOf(project).keys()];
    const path = "attributes.csv";
    const read = byTables([{ path, rows: readRows(rows().join("\n"), path) }], paths);
    expect(read.labeled.map(({ labels }) => labels)).toEqual([
      ['say "hi"', "Attribute 2"],
      [],
      ["Attribute 2"],
    ]);
  });
});

it("photos are packed by class, each under a name of its own", async () => {
  const names = ["5-a.jpg", "x/a.jpg", "y/a.jpg", "a.jpg"];
  await project.add(names.map((name) => photo(name, 1)));
  const last = await project.add([photo("a.jpg", 1), photo("5-a.jpg", 1), photo("a.jpg", 2)]);
  expect(last[0]!.id).toBe(5);
  expect([...pathsOf(project).keys()]).toEqual([
    ...["5-a.jpg", "a.jpg", "3-a.jpg", "4-a.jpg", "5-5-a.jpg", "6-5-a.jpg"].map(
      (name) => `Class 1/${name}`,
    ),
    "Class 2/a.jpg",
  ]);
});

describe("photos are packed with a table of classes", () => {
  it.each([
    ["a/b", "a:b"],
    [".cats", "dogs"],
    ["Train", "test"],
    ["Cats", "cats"],
    ["cats.", "cats"],
  ])("called %s and %s", async (first, second) => {
    await project.rename(1, first);
    await project.rename(2, second);
    await project.add([photo("a.jpg", 1), { ...photo("x/a.jpg", 2), part: "validation" as const }]);
    const parts = partsOf(project);
    const paths = pathsOf(project, parts);
    expect([...paths.keys()]).toEqual(["photos/a.jpg", "photos/2-a.jpg"]);
    const path = "labels.csv";
    const rows = readRows(tableOf(project, paths, parts), path);
    const { labeled } = byTables([{ path, rows }], [...paths.keys()]);
    expect(labeled.map(({ labels, part }) => [labels, part])).toEqual([
      [[first], "train"],
      [[second], "validation"],
    ]);
  });
});

describe("photos are packed", () => {
  const packed = (run?: PhotoEntry[]) => [...pathsOf(project, partsOf(project, run)).keys()];
  const many = (owner: number, count: number) =>
    Array.from({ length: count }, (_, i) => photo(`${owner}-${i}.jpg`, owner));

  it("as the user has divided them", async () => {
    await project.add([photo("a.jpg", 2), { ...photo("v.jpg", 2), part: "validation" as const }]);
    expect(packed()).toEqual(["train/Class 2/a.jpg", "val/Class 2/v.jpg"]);
  });

  it("as the next run divides them", async () => {
    await project.add([...many(1, 10), ...many(2, 9)]);
    const held = packed().filter((path) => path.startsWith("val/Class 1/"));
    expect([held.length, packed().filter((path) => path.startsWith("train/")).length]).toEqual([
      2, 17,
    ]);
  });

  it("without parts where none is held out", async () => {
    await project.add([...many(1, 2), { ...photo("t.jpg", 2), part: "train" as const }]);
    expect(packed()).toEqual(["Class 1/1-0.jpg", "Class 1/1-1.jpg", "Class 2/t.jpg"]);
  });

  it("as the run in use has divided them, also when there are others", async () => {
    const before = await project.add([...many(1, 12), ...many(2, 13)]);
    const run = divide("classification", project.classes, before);
    await project.add(many(2, 90)); // by which the next run will divide them otherwise
    const held = run.filter(({ split }) => split === "validation").map(({ id }) => id);
    const parts = partsOf(project, run)!;
    expect(before.filter(({ id }) => parts.get(id) === "validation").map(({ id }) => id)).toEqual(
      held,
    );
    expect(divide("classification", project.classes, project.all())).not.toEqual(
      expect.arrayContaining(run),
    );
    expect([...parts.values()].filter((part) => part === "validation").length).toBeGreaterThan(15);
    await project.remove(new Set(held));
    expect([...partsOf(project, run)!.keys()]).toEqual(project.all().map(({ id }) => id));
  });

  it("as a table, with the parts in a column", async () => {
    await project.setTask("attributes");
    await project.add(many(1, 10));
    const parts = partsOf(project);
    const [titles, ...rows] = tableOf(project, pathsOf(project, parts), parts).trim().split("\n");
    expect(titles).toBe("file,split,Attribute 1,Attribute 2");
    expect(rows.filter((row) => row.endsWith(",val,1,0"))).toHaveLength(2);
  });
});
