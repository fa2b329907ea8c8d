import "fake-indexeddb/auto";
import { readFileSync } from "node:fs";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { type Checkpoint, UserError } from "../../src/contract";
import type * as formats from "../../src/formats/kit";
import { readKit } from "../../src/formats/kit";
import { Catalog, describe as described } from "../../src/page/kits";
import type { ModelRecord } from "../../src/storage/schema";
import { Store } from "../../src/storage/store";
import { bytes, changed, text } from "../formats/fixtures";

vi.mock("../../src/formats/kit", async (original) => {
  const real = await original<typeof formats>();
  return { ...real, readKit: vi.fn(real.readKit) };
});

const WHOLE = new Uint8Array(readFileSync(new URL("../fixtures/whole.zip", import.meta.url)));

let number = 0;
let store: Store;
let catalog: Catalog;

beforeEach(async () => {
  vi.stubGlobal("fetch", () => Promise.reject(new TypeError("no network")));
  store = await Store.open(`kits-${number++}`);
  catalog = new Catalog(store);
});
afterEach(() => void vi.unstubAllGlobals());

const added = () => catalog.add(new File([WHOLE], "whole.zip"));

it("kits that cannot be read are listed beside those that can", async () => {
  const offer = await added();
  const older = changed(WHOLE, "manifest.json", (manifest) =>
    bytes(text(manifest).replace(/"schema": \d+/, '"schema": 1')),
  );
  await store.addKit({ hash: "older", name: "old", zip: older });
  await store.addKit({ hash: "broken", name: "torn", zip: new Uint8Array([1, 2, 3]) });
  await catalog.load();
  expect(catalog.offers).toEqual([offer]);
  const { unusable } = catalog;
  expect(unusable.map(({ name }) => name).sort()).toEqual(["old", "torn"]);
  expect(unusable.every(({ error }) => error instanceof UserError)).toBe(true);
  await catalog.remove("older");
  expect(catalog.unusable.map(({ hash }) => hash)).toEqual(["broken"]);
});

it("a kit is read once, whatever it is called", async () => {
  await added();
  const offer = await catalog.add(new File([WHOLE], "renamed.zip"));
  expect(offer.name).toBe("renamed");
  vi.mocked(readKit).mockClear();
  await catalog.load();
  expect(catalog.offers).toEqual([offer]);
  expect(readKit).not.toHaveBeenCalled();
  const later = new Catalog(store);
  await later.load();
  expect(later.offers).toEqual([offer]);
  expect(readKit).toHaveBeenCalledTimes(1);
});

it("a page in place of the site's list leaves the kits that are kept", async () => {
  await added();
  vi.stubGlobal("fetch", () => Promise.resolve(new Response("<!doctype html>")));
  await catalog.load();
  expect(catalog.offers.map(({ name }) => name)).toEqual(["whole"]);
});

describe("the kit", () => {
  it.each([
    ["the network in use", (hash: string) => store.saveModel({ kitHash: hash } as ModelRecord)],
    ["an interrupted run", (hash: string) => store.saveCheckpoint({ kitHash: hash } as Checkpoint)],
  ])("of %s stays", async (_, keep) => {
    const { hash } = await added();
    await keep(hash);
    await expect(catalog.remove(hash)).rejects.toThrow("needs this kit");
    expect(await store.kit(hash)).toBeDefined();
  });

  it("of another network is removed", async () => {
    const { hash } = await added();
    await store.saveModel({ kitHash: "other" } as ModelRecord);
    await catalog.remove(hash);
    expect([catalog.offers, await store.kits()]).toEqual([[], []]);
  });
});

it("another kit at a kit's address asks to reload the page", async () => {
  const { hash, ...facts } = await added();
  await catalog.remove(hash);
  const listing = { kits: [{ ...facts, hash: "former", path: "kits/whole.zip" }] };
  vi.stubGlobal("fetch", (path: string) =>
    Promise.resolve(path === "site.json" ? Response.json(listing) : new Response(WHOLE)),
  );
  await catalog.load();
  await expect(catalog.keep("former")).rejects.toThrow("reload the page");
  expect(await store.kits()).toEqual([]);
});

it("a kit that is kept is told from one of the same name on the site", async () => {
  const offer = await added();
  const own = described(offer);
  expect(own).toContain(`kept in this browser (${offer.hash.slice(0, 12)})`);
  expect(own).toContain(described({ ...offer, path: "kits/whole.zip" }));
});
