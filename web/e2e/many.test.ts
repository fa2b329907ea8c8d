/** Ten thousand photos in one tab, and the memory that they take. */
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import * as given from "./studio";

const { missing, openPage, photo, train, BLUE, RED } = given;

const PHOTOS = 10_000;
const MOST_BYTES = 96 << 20;
/** Milliseconds, for a machine that does other things as well. */
const PATIENCE = 900_000;

let browser: Browser;
let studio: given.Studio;

beforeAll(async () => {
  if (missing) return;
  const measured = ["--enable-blink-features=ForceEagerMeasureMemory"];
  const opening = given.openBrowser(true, ...measured, "--js-flags=--expose-gc");
  [browser, studio] = await Promise.all([opening, given.startStudio()]);
});
afterAll(async () => {
  await browser?.close();
  studio?.stop();
});

/** Bytes of JavaScript of the page and its workers, and of elements; without the runtime's heap. */
async function scripts(page: Page): Promise<number> {
  return page.evaluate(async () => {
    (globalThis as { gc?: () => void }).gc?.();
    const measure = performance as unknown as {
      measureUserAgentSpecificMemory(): Promise<{ bytes: number }>;
    };
    return (await measure.measureUserAgentSpecificMemory()).bytes;
  });
}

/** The runtime's heap, as the page shows it. */
async function runtime(page: Page): Promise<number> {
  const shown = page.locator("dl div", { hasText: "Memory of the runtime" }).locator("dd");
  const [value, unit] = (await shown.innerText()).split(" ");
  return unit === "MB" ? Number(value) * 1e6 : 0;
}

/** Photos as the page keeps them, in two classes, without the time that adding each takes. */
async function fill(page: Page): Promise<void> {
  const blobs = [RED, BLUE].flatMap((color) =>
    Array.from({ length: 10 }, (_, i) => photo("", color, i).buffer.toString("base64")),
  );
  await page.evaluate(
    async ({ blobs, count }) => {
      const opened = indexedDB.open("pocketune-studio");
      await new Promise((resolve) => (opened.onsuccess = resolve));
      const database = opened.result;
      const names = ["photos", "blobs", "thumbnails", "project"];
      const change = database.transaction(names, "readwrite");
      const [photos, kept, small, project] = names.map((name) => change.objectStore(name)) as [
        IDBObjectStore,
        IDBObjectStore,
        IDBObjectStore,
        IDBObjectStore,
      ];
      const made = blobs.map((text) => {
        const bytes = Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
        return new Blob([bytes], { type: "image/png" });
      });
      const classes = [
        { id: 1, name: "red" },
        { id: 2, name: "blue" },
      ];
      project.put({ task: "classification", classes, kit: null }, "project");
      for (let id = 1; id <= count; id++) {
        const owner = id % 2 ? 1 : 2;
        photos.put({ id, name: `${id}.png`, owners: [owner], part: null, recording: 0 });
        const blob = made[(owner - 1) * 10 + (id % 10)]!;
        kept.put(blob, id);
        small.put(blob, id);
      }
      await new Promise((resolve) => (change.oncomplete = resolve));
      database.close();
    },
    { blobs, count: PHOTOS },
  );
}

describe.skipIf(missing)("ten thousand photos", () => {
  it(
    `take at most ${MOST_BYTES >> 20} MiB, shown and trained on`,
    async () => {
      const page = await openPage(browser, studio.url);
      await fill(page);
      await page.reload();
      await page.getByText("10,000 photos in 2 classes").waitFor();
      const grid = page.getByRole("listbox", { name: "Photos of red" });
      for (let i = 0; i < 10; i++) {
        await grid.press(i % 2 ? "Home" : "End");
        await grid.locator(`[aria-posinset='${i % 2 ? 1 : PHOTOS / 2}']`).waitFor();
      }
      const shown = await scripts(page);
      await train(page, "blocks", 1);
      let most = 0;
      const progress = page.locator("progress:visible");
      const done = async () => Number(await progress.getAttribute("value"));
      await expect.poll(done, { timeout: PATIENCE }).toBeGreaterThan(0);
      const began = performance.now();
      while (performance.now() - began < 10_000) {
        most = Math.max(most, (await scripts(page)) + (await runtime(page)));
      }
      console.log(
        `10,000 photos: ${(shown / 1e6).toFixed(1)} MB shown, ${(most / 1e6).toFixed(1)} MB with ` +
          `a run, of which ${((await runtime(page)) / 1e6).toFixed(1)} MB are the runtime's heap`,
      );
      expect(await runtime(page)).toBeGreaterThan(1e6);
      expect(most).toBeLessThan(MOST_BYTES);
      expect(page.errors).toEqual([]);
      await page.getByRole("button", { name: "Stop and keep the best" }).click();
      await page.context().close();
    },
    PATIENCE,
  );
});
