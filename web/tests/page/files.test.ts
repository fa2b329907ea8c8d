/** Deltas that are opened, of kits of the site. */
import "fake-indexeddb/auto";
import { readFileSync } from "node:fs";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { readKit } from "../../src/formats/kit";
import { Catalog, type Offer } from "../../src/page/kits";
import { openDelta } from "../../src/page/take/files";
import { Store } from "../../src/storage/store";
import { bytes, changed, fixture, text } from "../formats/fixtures";

const OTHER = new Uint8Array(readFileSync(new URL("../fixtures/whole.zip", import.meta.url)));
const OWN = fixture("kit.zip");
const DELTA = new File([fixture("delta.safetensors")], "delta.safetensors");

let number = 0;
let catalog: Catalog;
let fetched: string[];

beforeEach(async () => {
  fetched = [];
  catalog = new Catalog(await Store.open(`files-${number++}`));
});
afterEach(() => void vi.unstubAllGlobals());

/** The site has kits, by their paths. */
async function offer(zips: Record<string, Uint8Array<ArrayBuffer>>): Promise<void> {
  for (const [path, zip] of Object.entries(zips)) {
    const { hash } = await readKit(zip);
    catalog.offers.push({ hash, path, name: path } as Offer);
  }
  vi.stubGlobal("fetch", (path: string) => {
    fetched.push(path);
    return Promise.resolve(new Response(zips[path]));
  });
}

it("a delta fetches its own kit and no other one", async () => {
  await offer({ "other.zip": OTHER, "own.zip": OWN });
  expect((await openDelta(DELTA, catalog)).kitHash).toBe((await readKit(OWN)).hash);
  expect(new Set(fetched)).toEqual(new Set(["own.zip"]));
});

it("a delta opens with a kit of another hash and the same network", async () => {
  const same = changed(OWN, "manifest.json", (manifest) =>
    bytes(text(manifest).replace('"name": "tiny"', '"name": "same"')),
  );
  await offer({ "other.zip": OTHER, "same.zip": same });
  const { hash } = await readKit(same);
  expect((await openDelta(DELTA, catalog)).kitHash).toBe(hash);
  expect(hash).not.toBe((await readKit(OWN)).hash);
});
