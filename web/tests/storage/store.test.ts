import "fake-indexeddb/auto";
import { openDB } from "idb";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { type Checkpoint, type FeatureKey, UserError } from "../../src/contract";
import {
  isQuota,
  type ModelRecord,
  type NewPhoto,
  openDatabase,
  saved,
} from "../../src/storage/schema";
import { Store } from "../../src/storage/store";
import { openWorkerStore } from "../../src/storage/worker";

let store: Store;
let number = 0;

beforeEach(async () => {
  store = await Store.open(`test-${number++}`);
});
afterEach(() => {
  vi.restoreAllMocks();
  store.close();
});

function photo(name: string, owner = 1): NewPhoto {
  const blob = new Blob([name]);
  return {
    name,
    owners: [owner],
    part: null,
    recording: 0,
    blob,
    thumbnail: new Blob([`small ${name}`]),
  };
}

function quota(): DOMException {
  return new DOMException("full", "QuotaExceededError");
}

describe("photos", () => {
  it("are listed without their bytes, in order", async () => {
    const kept = await store.add([photo("a"), photo("b", 2)]);
    expect(await store.photos()).toEqual(kept);
    expect(kept.map((each) => [each.id, each.name, each.owners])).toEqual([
      [1, "a", [1]],
      [2, "b", [2]],
    ]);
    expect(kept.every((each) => !("blob" in each))).toBe(true);
    expect(await (await store.photo(2)).text()).toBe("b");
    expect(await (await store.thumbnail(1))!.text()).toBe("small a");
  });

  it("change and keep everything else", async () => {
    const kept = await store.add([photo("a"), photo("b")]);
    const changed = { ...kept[1]!, owners: [7, 8] };
    await store.change([changed]);
    expect(await store.photos()).toEqual([kept[0], changed]);
  });

  it("that are deleted do not come back by a change", async () => {
    const kept = await store.add([photo("a"), photo("b")]);
    await store.remove([1]);
    await store.change(kept.map((each) => ({ ...each, owners: [2] })));
    expect((await store.photos()).map(({ name, owners }) => [name, owners])).toEqual([["b", [2]]]);
  });

  it("take their features with them, and no others", async () => {
    await store.add([photo("a"), photo("b")]);
    const worker = await openWorkerStore(store.name);
    const keys: FeatureKey[] = [
      [1, "kit/0"],
      [1, "kit/1"],
      [2, "kit/0"],
      [10, "kit/0"],
    ];
    await worker.writeFeatures(keys.map((key, i) => [key, Uint8Array.of(i)]));
    await store.remove([1]);
    expect(await worker.readFeatures(keys)).toEqual([
      undefined,
      undefined,
      Uint8Array.of(2),
      Uint8Array.of(3),
    ]);
    await expect(store.photo(1)).rejects.toThrow(UserError);
    expect(await worker.photo(1)).toBeUndefined();
    expect(await (await worker.photo(2))!.text()).toBe("b");
    worker.close();
  });

  it("of which one does not fit are not kept at all", async () => {
    const put = vi.spyOn(IDBObjectStore.prototype, "put");
    put.mockImplementation(() => {
      throw quota();
    });
    await expect(store.add([photo("a")])).rejects.toThrow("There is no room left");
    put.mockRestore();
    expect(await store.photos()).toEqual([]);
  });

  it("push features out where there is no room", async () => {
    const worker = await openWorkerStore(store.name);
    await worker.writeFeatures([[[9, "kit/0"], Uint8Array.of(1)]]);
    const real = IDBObjectStore.prototype.add;
    const add = vi.spyOn(IDBObjectStore.prototype, "add");
    add.mockImplementationOnce(() => {
      throw quota();
    });
    add.mockImplementation(real);
    expect(await store.add([photo("a")])).toHaveLength(1);
    expect(await worker.readFeatures([[9, "kit/0"]])).toEqual([undefined]);
    worker.close();
  });
});

describe("what is kept", () => {
  const model = { kitHash: "abc" } as ModelRecord;
  const checkpoint = { kitHash: "abc" } as Checkpoint;
  const kit = { hash: "abc", name: "last", zip: Uint8Array.of(1) };

  it.each([
    ["a checkpoint", () => store.saveCheckpoint(checkpoint), () => store.checkpoint()],
    ["a model", () => store.saveModel(model), () => store.model()],
    ["what a run has given", () => store.finish(model), () => store.model()],
    ["a kit", () => store.addKit(kit), () => store.kit("abc")],
  ])("pushes features out where there is no room: %s", async (_, keep, kept) => {
    const worker = await openWorkerStore(store.name);
    await worker.writeFeatures([[[9, "kit/0"], Uint8Array.of(1)]]);
    vi.spyOn(IDBObjectStore.prototype, "put").mockImplementationOnce(() => {
      throw quota();
    });
    await keep();
    expect(await kept()).toBeDefined();
    expect(await worker.readFeatures([[9, "kit/0"]])).toEqual([undefined]);
    worker.close();
  });

  it("of a run is its result, in place of the checkpoint and the features", async () => {
    const worker = await openWorkerStore(store.name);
    await worker.writeFeatures([[[9, "kit/0"], Uint8Array.of(1)]]);
    await store.saveCheckpoint(checkpoint);
    await store.finish(model);
    expect([await store.model(), await store.checkpoint()]).toEqual([model, undefined]);
    expect(await worker.readFeatures([[9, "kit/0"]])).toEqual([undefined]);
    worker.close();
  });

  it("of a run is still its checkpoint, if there is no room for the result", async () => {
    await store.saveCheckpoint(checkpoint);
    vi.spyOn(IDBObjectStore.prototype, "put").mockImplementation(() => {
      throw quota();
    });
    await expect(store.finish(model)).rejects.toThrow("There is no room left");
    expect([await store.model(), await store.checkpoint()]).toEqual([undefined, checkpoint]);
  });
});

describe("features", () => {
  it("that do not fit are no error", async () => {
    const worker = await openWorkerStore(store.name);
    const put = vi.spyOn(IDBObjectStore.prototype, "put");
    put.mockImplementation(() => {
      throw quota();
    });
    expect(await worker.writeFeatures([[[1, "kit/0"], new Uint8Array(3)]])).toBe(false);
    worker.close();
  });
});

describe("forgetting", () => {
  it("empties every store that there is", async () => {
    await store.add([photo("a")]);
    await store.saveProject({
      task: "classification",
      classes: [{ id: 1, name: "cats" }],
      kit: "abc",
    });
    await store.addKit({ hash: "abc", name: "last", zip: Uint8Array.of(1) });
    await store.saveCheckpoint({ kitHash: "abc" } as never);
    await store.saveModel({ kitHash: "abc" } as never);
    const worker = await openWorkerStore(store.name);
    await worker.writeFeatures([[[1, "abc/0"], Uint8Array.of(1)]]);
    const raw = await openDB(store.name);
    const counts = () => Promise.all([...raw.objectStoreNames].map((name) => raw.count(name)));
    expect(await counts()).toEqual(Array(8).fill(1));
    await store.forget();
    expect(await counts()).toEqual(Array(8).fill(0));
    raw.close();
    worker.close();
  });
});

describe("errors", () => {
  it("of the browser become one sentence", async () => {
    await expect(saved(Promise.reject(quota()))).rejects.toThrow(UserError);
    const gone = new DOMException("", "InvalidStateError");
    await expect(saved(Promise.reject(gone))).rejects.toThrow("(InvalidStateError); reload");
    const bug = new TypeError("a bug");
    await expect(saved(Promise.reject(bug))).rejects.toBe(bug);
    expect([isQuota(quota()), isQuota(gone), isQuota(null)]).toEqual([true, false, false]);
  });

  it.each([
    [1, "an older version"],
    [1000, "a newer version"],
  ])("of a database of version %i leave it as it is", async (version, said) => {
    const name = `version-${version}`;
    const made = await openDB(name, version, {
      upgrade: (other) => void other.createObjectStore("photos", { autoIncrement: true }),
    });
    await made.add("photos", "a");
    made.close();
    await expect(openDatabase(name)).rejects.toThrow(`keeps photos of ${said} of Pocketune`);
    const again = await openDB(name);
    expect([again.version, await again.getAll("photos")]).toEqual([version, ["a"]]);
    again.close();
  });

  it("without a database say so", async () => {
    vi.spyOn(indexedDB, "open").mockImplementation(() => {
      throw new DOMException("", "SecurityError");
    });
    await expect(openDatabase("none")).rejects.toThrow("open it in an ordinary window");
  });
});
