/**
 * Thousands of photos in one tab, and the memory that each phase of a run on them takes.
 *
 * `PHOTOS` is their number, and `MEASURED` names a file for the figures. With 10,000, a run takes many
 * minutes, which is why the tests have fewer.
 */
import { readFileSync, writeFileSync } from "node:fs";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import * as given from "./studio";

const { missing, openPage, photo, train, BLUE, RED } = given;

const PHOTOS = Number(process.env["PHOTOS"] ?? 400);
const MOST_BYTES = 96 << 20;
/** Milliseconds, for a machine that does other things as well. */
const PATIENCE = 300_000 + 600 * PHOTOS;

/** What a run does in turn, by what the page says of it. */
const PHASES = [
  ["looking at the photos", /^Looking at the photos/],
  ["computing the classifier", /^Computing a classifier/],
  ["validation before the first step", /^Looking at the held-out/],
  ["steps and validation", /^Epoch 1 of 1/],
  ["classifier again", /^Computing a classifier/],
  ["what the result is like", /^Looking at what it has learned/],
  ["done", /^Done/],
] as const;

/** The most that was seen in a phase: bytes, and how often it was looked at. */
interface Seen {
  scripts: number;
  runtime: number;
  both: number;
  process: number;
  looks: number;
}

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
  const shown = page.locator("dl div", { hasText: "Runtime memory" }).locator("dd");
  const [value, unit] = (await shown.innerText()).split(" ");
  return unit === "MB" ? Number(value) * 1e6 : 0;
}

/** Memory of the page's process that is no file: the browser's own, and what waits to be collected, too. */
async function ofProcess(): Promise<number> {
  const session = await browser.newBrowserCDPSession();
  const { processInfo } = await session.send("SystemInfo.getProcessInfo");
  await session.detach();
  const each = processInfo
    .filter(({ type }) => type === "renderer")
    .map(({ id }) => statusOf(id))
    .map((status) => [...status.matchAll(/^Rss(?:Anon|Shmem):\s+(\d+) kB/gm)])
    .map((found) => found.reduce((sum, [, kilobytes]) => sum + 1024 * Number(kilobytes), 0));
  return Math.max(0, ...each);
}

/** What the system says of a process; nothing of one that has ended. */
function statusOf(id: number): string {
  try {
    return readFileSync(`/proc/${id}/status`, "utf8");
  } catch {
    return "";
  }
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

/** Look at the memory until the run has ended. */
async function follow(page: Page): Promise<Seen[]> {
  const seen: Seen[] = PHASES.map(() => ({
    scripts: 0,
    runtime: 0,
    both: 0,
    process: 0,
    looks: 0,
  }));
  const heading = page.locator(".run h3");
  let phase = 0;
  /** The phase that the run is in, and the memory of its process. */
  const look = async (): Promise<Seen> => {
    const said = await heading.innerText();
    phase = Math.max(
      phase,
      PHASES.findIndex(([, pattern], i) => i >= phase && pattern.test(said)),
    );
    const most = seen[phase]!;
    most.process = Math.max(most.process, await ofProcess());
    return most;
  };
  while (!seen.at(-1)!.looks) {
    // A worker does not answer while it computes a classifier, but its process can be seen.
    let answered = false;
    const asked = scripts(page).finally(() => (answered = true));
    while (!answered) {
      await look();
      await new Promise((wake) => setTimeout(wake, 100));
    }
    const [own, heap] = [await asked, await runtime(page)];
    const most = await look();
    most.looks += 1;
    most.scripts = Math.max(most.scripts, own);
    most.runtime = Math.max(most.runtime, heap);
    most.both = Math.max(most.both, own + heap);
  }
  return seen;
}

describe.skipIf(missing)("thousands of photos", () => {
  it(
    `take at most ${MOST_BYTES >> 20} MiB, shown and while a network is trained on them`,
    async () => {
      const page = await openPage(browser, studio.url);
      await fill(page);
      await page.reload();
      await page.getByText(`${PHOTOS.toLocaleString("en")} photos in 2 classes`).waitFor();
      const grid = page.getByRole("listbox", { name: "Photos of red" });
      for (let i = 0; i < 10; i++) {
        await grid.press(i % 2 ? "Home" : "End");
        await grid.locator(`[aria-posinset='${i % 2 ? 1 : PHOTOS / 2}']`).waitFor();
      }
      const shown = await scripts(page);
      await train(page, "blocks", 1);
      const seen = await follow(page);
      const phases = PHASES.map(([name], i) => ({ name, ...seen[i]! }));
      console.table(phases);
      const measured = { photos: PHOTOS, shown, phases, browser: browser.version() };
      const file = process.env["MEASURED"];
      if (file) writeFileSync(file, JSON.stringify(measured));
      expect(Math.max(shown, ...seen.map(({ both }) => both))).toBeLessThan(MOST_BYTES);
      // How many looks a phase gets depends on the machine; the runtime's heap never shrinks.
      expect(Math.max(...seen.map((each) => each.runtime))).toBeGreaterThan(1e6);
      expect(page.errors).toEqual([]);
      await page.getByRole("heading", { name: "Your network is ready" }).waitFor();
      await page.context().close();
    },
    PATIENCE,
  );
});
