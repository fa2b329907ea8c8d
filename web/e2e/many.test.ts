/**
 * Thousands of photos in one tab, and the memory that each phase takes: from the import of their folder
 * to the files that are taken along, with a reload in the middle of the run.
 *
 * `PHOTOS` is their number, and `MEASURED` names a file for the figures. With 10,000, a run takes long,
 * which is why the tests have fewer. `KIT` is the .zip of a kit, in place of `blocks`.
 */
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { unzipSync } from "fflate";
import type { BrowserContext, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import * as given from "./studio";

const { goTo, missing, openPage, train } = given;

const PHOTOS = Number(process.env["PHOTOS"] ?? 400);
const KIT = process.env["KIT"];
const CLASSES = 5;
/** The features of so many epochs are kept. */
const EPOCHS = 8;
const MOST_BYTES = 96 << 20;
/** Milliseconds, for a machine that does other things as well. */
const PATIENCE = 600_000 + 600 * PHOTOS;

/** What a run does in turn, by what the page says of it. */
const RUN = [
  ["looking at the photos", /^Looking at the photos/],
  ["computing the classifier", /^Computing a classifier/],
  ["validation before the first step", /^Looking at the held-out/],
  ["steps and validation", /^Epoch \d+ of/],
  ["classifier again", /^(Looking at the photos|Computing a classifier)/],
  ["what the result is like", /^Looking at what it has learned/],
] as const;

/** JPEGs of 160 x 120 pixels in class folders, each of its own. */
const MAKE = `
import sys
from pathlib import Path
import numpy as np
from PIL import Image
folder, count, classes = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
rng = np.random.default_rng(0)
hues = np.array([[200, 60, 60], [60, 180, 60], [70, 70, 210], [190, 180, 60], [120, 60, 180]])
for number in range(count):
    label = number % classes
    below = folder / f"class {label}"
    below.mkdir(parents=True, exist_ok=True)
    coarse = Image.fromarray(rng.integers(0, 110, (6, 8, 3), np.uint8)).resize((160, 120))
    noise = rng.integers(0, 30, (120, 160, 3))
    pixels = np.clip(0.6 * hues[label % 5] + np.asarray(coarse) + noise, 0, 255)
    Image.fromarray(pixels.astype(np.uint8)).save(below / f"{number}.jpg", quality=85)
`;

/** The most that was seen in a phase: bytes, and milliseconds of a task of the page's thread. */
interface Seen {
  /** Of the page, its workers and the runtime. */
  memory: number;
  /** Of these, the runtime's heap. */
  runtime: number;
  process: number;
  task: number;
  looks: number;
}

let browser: BrowserContext;
let studio: given.Studio;
let folder: string;

beforeAll(async () => {
  if (missing) return;
  folder = mkdtempSync(join(tmpdir(), "many-"));
  const args = ["-c", MAKE, join(folder, "photos"), String(PHOTOS), String(CLASSES)];
  expect(spawnSync(given.PYTHON, args, { stdio: "inherit" }).status).toBe(0);
  const measured = ["--enable-blink-features=ForceEagerMeasureMemory", "--js-flags=--expose-gc"];
  // A window without a profile would keep the photos in the memory of the browser.
  const opening = given.openProfile(join(folder, "profile"), ...measured);
  [browser, studio] = await Promise.all([opening, given.startStudio()]);
});
afterAll(async () => {
  await browser?.close();
  studio?.stop();
  if (folder) rmSync(folder, { recursive: true, force: true });
});

/** What is known of a page from within. */
interface Watched {
  gc?: () => void;
  /** Whether the task in which garbage is collected for a look is not to be counted. */
  looking: boolean;
  /** Milliseconds. */
  longest: number;
  /** The runtime's heap in each worker, as it says itself. */
  heaps: Map<Worker, number>;
}

/** Runs in the page, before it. */
function watch(): void {
  // A thread of the runtime that waits for work answers no measurement for a minute.
  Object.defineProperty(navigator, "hardwareConcurrency", { value: 1 });
  const heaps = new Map<Worker, number>();
  const watched = Object.assign(globalThis, { looking: false, longest: 0, heaps });
  new PerformanceObserver((list) => {
    if (watched.looking) return;
    for (const { duration } of list.getEntries()) {
      watched.longest = Math.max(watched.longest, duration);
    }
  }).observe({ type: "longtask" });
  window.Worker = class extends Worker {
    constructor(address: string | URL, options?: WorkerOptions) {
      super(address, options);
      this.addEventListener("message", ({ data }: MessageEvent<{ heapBytes?: number }>) => {
        if (data.heapBytes) heaps.set(this, data.heapBytes);
      });
    }
    override terminate(): void {
      super.terminate();
      heaps.delete(this);
    }
  };
}

/** Looks at a page again and again, and keeps the most of each phase. */
class Meter {
  readonly phases = new Map<string, Seen>();
  private phase = "";
  private going = true;
  private readonly done: Promise<void>;

  constructor(private readonly page: Page) {
    this.enter("empty");
    this.done = this.watch();
  }

  enter(phase: string): void {
    this.phase = phase;
    if (this.phases.has(phase)) return;
    const none = { memory: 0, runtime: 0, process: 0, task: 0, looks: 0 };
    this.phases.set(phase, none);
  }

  /** A look at the phase that is going on, once it is quiet. */
  async look(): Promise<void> {
    const { looks } = this.seen;
    while (this.seen.looks < looks + 2) await new Promise((wake) => setTimeout(wake, 50));
  }

  async end(): Promise<void> {
    this.going = false;
    await this.done;
  }

  private get seen(): Seen {
    return this.phases.get(this.phase)!;
  }

  private async watch(): Promise<void> {
    while (this.going) {
      // A worker does not answer while it computes a classifier, but its process can be seen.
      const { phase } = this;
      let answered = false;
      const asked = measure(this.page)
        .catch(() => null) // it is being reloaded
        .finally(() => (answered = true));
      while (!answered) {
        const bytes = await ofProcess();
        this.seen.process = Math.max(this.seen.process, bytes);
        await new Promise((wake) => setTimeout(wake, 500));
      }
      const found = await asked;
      if (!found || phase !== this.phase) continue;
      const { seen } = this;
      seen.looks += 1;
      seen.memory = Math.max(seen.memory, found.memory);
      seen.runtime = Math.max(seen.runtime, found.runtime);
      seen.task = Math.max(seen.task, found.task);
    }
  }
}

/**
 * Bytes of JavaScript of the page and its workers, of WebAssembly and of elements; of the runtime's heap,
 * which is among these, as shared memory is; and milliseconds of the longest task since the last look.
 */
function measure(page: Page): Promise<Pick<Seen, "memory" | "runtime" | "task">> {
  return page.evaluate(async () => {
    const watched = globalThis as unknown as Watched;
    const task = watched.longest;
    watched.looking = true;
    watched.gc?.();
    const measure = performance as unknown as {
      measureUserAgentSpecificMemory(): Promise<{ bytes: number }>;
    };
    await new Promise((next) => setTimeout(next, 100)); // the observer has heard of it
    watched.looking = false;
    watched.longest = 0;
    const { bytes } = await measure.measureUserAgentSpecificMemory();
    const runtime = [...watched.heaps.values()].reduce((a, b) => a + b, 0);
    return { memory: bytes, runtime, task };
  });
}

/** Memory of the page's process that is no file: the browser's own, and what waits to be collected, too. */
async function ofProcess(): Promise<number> {
  const session = await browser.browser()!.newBrowserCDPSession();
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

/** Import the folder, as one drops it. */
async function importFolder(page: Page): Promise<void> {
  const waiting = page.waitForEvent("filechooser");
  await page.getByRole("button", { name: "Import a folder" }).click();
  await (await waiting).setFiles(join(folder, "photos"));
  const count = `${PHOTOS.toLocaleString("en")} photos in ${CLASSES} classes`;
  await page.getByText(count).waitFor({ timeout: PATIENCE });
  await page.locator(".importing").waitFor({ state: "hidden" });
}

/** Scroll through a class. */
async function scroll(page: Page): Promise<void> {
  const grid = page.getByRole("listbox", { name: "Photos of class 0" });
  for (let i = 0; i < 10; i++) {
    await grid.press(i % 2 ? "Home" : "End");
    await grid.locator(`[aria-posinset='${i % 2 ? 1 : PHOTOS / CLASSES}']`).waitFor();
  }
}

/** Enter the phases of a run from a number on, until the page says something. */
async function follow(page: Page, meter: Meter, until: RegExp, from = 0): Promise<void> {
  const heading = page.locator(".run h3");
  let phase = from;
  for (;;) {
    const said = await heading.innerText();
    if (until.test(said)) return;
    phase = Math.max(
      phase,
      RUN.findIndex(([, pattern], i) => i >= phase && pattern.test(said)),
    );
    meter.enter(RUN[phase]![0]);
    await new Promise((wake) => setTimeout(wake, 100));
  }
}

describe.skipIf(missing)("thousands of photos", () => {
  it(
    `take at most ${MOST_BYTES >> 20} MiB in every phase`,
    async () => {
      await browser.addInitScript(watch);
      const page = await openPage(browser, studio.url);
      page.setDefaultTimeout(PATIENCE);
      const meter = new Meter(page);
      await meter.look();
      meter.enter("import");
      await importFolder(page);
      meter.enter("scrolling");
      await scroll(page);
      await meter.look();

      await goTo(page, "Train");
      if (KIT) await given.choose(page, "Add a kit (.zip)", KIT);
      await train(page, KIT ? basename(KIT, ".zip") : "blocks", EPOCHS);
      await follow(page, meter, /^Epoch 2 of/);
      await page.getByRole("button", { name: "Pause" }).click();
      await page.getByRole("heading", { name: "Paused" }).waitFor();
      await expect.poll(() => given.stored(page, "checkpoint")).toBe(1);
      meter.enter("reloaded in the run");
      await page.reload();
      await page.getByText("A run was interrupted. It can go on from epoch 2").waitFor();
      await meter.look();
      await page.getByRole("button", { name: "Go on" }).click();
      await follow(page, meter, /^Done/, 3);
      meter.enter("done");
      await page.getByRole("heading", { name: "Your network is ready" }).waitFor();
      await expect.poll(() => given.stored(page, "checkpoint")).toBe(0);
      await meter.look();

      meter.enter("use");
      await goTo(page, "Use");
      const below = join(folder, "photos", "class 0");
      const some = readdirSync(below).slice(0, 60);
      const waiting = page.waitForEvent("filechooser");
      await page.getByRole("button", { name: "Choose photos" }).click();
      await (await waiting).setFiles(some.map((name) => join(below, name)));
      await expect.poll(() => page.locator(".results > li").count()).toBe(some.length);
      await meter.look();
      await goTo(page, "Take along");
      for (const name of ["run.zip", "photos.zip"]) {
        meter.enter(name);
        await given.save(page, folder, name);
        await meter.look();
      }
      meter.enter("reloaded");
      await page.reload();
      await page.getByRole("button", { name: "Download run.zip" }).waitFor();
      await meter.look();
      await meter.end();

      const phases = [...meter.phases].map(([name, seen]) => ({ name, ...seen }));
      console.table(phases);
      const measured = { photos: PHOTOS, phases, browser: browser.browser()!.version() };
      const file = process.env["MEASURED"];
      if (file) writeFileSync(file, JSON.stringify(measured));
      const packed = unzipSync(readFileSync(join(folder, "photos.zip")));
      expect(Object.keys(packed).length).toBe(PHOTOS);
      expect(Math.max(...phases.map(({ memory }) => memory))).toBeLessThan(MOST_BYTES);
      // How many looks a phase gets depends on the machine; the runtime's heap never shrinks.
      expect(Math.max(...phases.map(({ runtime }) => runtime))).toBeGreaterThan(1e6);
      expect(page.errors).toEqual([]);
    },
    PATIENCE,
  );
});
