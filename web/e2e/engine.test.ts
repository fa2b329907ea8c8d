/** The engine in a browser: worker, threads, database, decoding; without the page. */
import { existsSync } from "node:fs";
import { rm } from "node:fs/promises";
import { type Browser, chromium, type Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { fixture } from "../tests/engine/fixture";
import type { Harness } from "./engine.harness";
import { CHROMIUM, harnessFolder, SITE } from "./harness";
import { serve } from "./serve";

declare const window: { harness: Harness };

const missing = !existsSync(CHROMIUM) || !existsSync(SITE);

describe.skipIf(missing)("the engine in Chromium", () => {
  let browser: Browser;
  let folder: string;

  beforeAll(async () => {
    folder = await harnessFolder("engine.harness.ts");
    browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
  });

  afterAll(async () => {
    await browser?.close();
    await rm(folder, { recursive: true, force: true });
  });

  async function withPage(isolated: boolean, use: (page: Page) => Promise<void>): Promise<void> {
    const served = await serve(folder, isolated);
    const context = await browser.newContext();
    try {
      const page = await context.newPage();
      await page.goto(`${served.url}/index.html`);
      await page.waitForFunction(() => "harness" in window);
      await use(page);
    } finally {
      await context.close();
      served.close();
    }
  }

  test.each([
    { isolated: true, threads: 2 },
    { isolated: false, threads: 2 },
  ])("trains and predicts, isolated: $isolated", async ({ isolated, threads }) => {
    await withPage(isolated, async (page) => {
      expect(await page.evaluate(() => self.crossOriginIsolated)).toBe(isolated);
      const found = await page.evaluate(async (threads) => {
        const photos = await window.harness.addPhotos(24);
        const settings = { optimizer: "adam", seed: 0, epochs: 2, threads } as const;
        return window.harness.trainAndPredict("last", photos, settings);
      }, threads);
      const last = found.events.at(-1)!;
      expect(last.kind === "error" ? last.message : last.kind).toBe("done");
      expect(found.correct).toBeGreaterThanOrEqual(22);
      expect(found.unknown).toBeLessThanOrEqual(6);
      expect(found.frameIsPhoto).toBe(true);
      expect(found.heapBytes).toBeLessThan(96 << 20);
      const heaps = found.events.flatMap((e) => (e.kind === "progress" ? [e.heapBytes] : []));
      expect(Math.max(...heaps)).toBeLessThan(96 << 20);
      expect(Math.min(...heaps)).toBeGreaterThan(1 << 20);
    });
  });

  test("a run that was stopped ends with the same bits", async () => {
    await withPage(true, async (page) => {
      const found = await page.evaluate(async () => {
        const photos = await window.harness.addPhotos(16);
        const settings = { optimizer: "adam", seed: 0, epochs: 100, threads: 1 } as const;
        return window.harness.resumesExactly("frozen", photos, settings);
      });
      expect(found.reason).toBe("stopped");
      // The request reaches the worker when it does; nothing after the last step that was told is kept.
      expect(found.step).toBe(found.heard);
      expect(found.step).toBeLessThan(found.steps);
      expect(found.same).toBe(true);
    });
  });

  test("a photo has the pixels that Python gives the network", async () => {
    await withPage(true, async (page) => {
      for (const { file, size, pixels } of fixture["photos"]) {
        const found = await page.evaluate(
          ([file, size]) => window.harness.centerPixels(`kits/${file}`, size),
          [file, size] as [string, number],
        );
        const off = found.map((value, i) => Math.abs(value - pixels[i]));
        expect(Math.max(...off)).toBeLessThanOrEqual(1);
      }
    });
  });

  test("a kit that is none, and a photo that is gone, end in a sentence", async () => {
    await withPage(true, async (page) => {
      const messages = await page.evaluate(async () => {
        const photos = await window.harness.addPhotos(8);
        const settings = { optimizer: "adam", seed: 0, epochs: 1, threads: 1 } as const;
        const gone = photos.map((photo) => ({ ...photo, id: photo.id + 1000 }));
        const runs = [
          await window.harness.train("missing", photos, settings),
          await window.harness.train("frozen", gone, settings),
        ];
        return runs.map(({ events }) => events.at(-1));
      });
      expect(messages[0]).toMatchObject({ kind: "error" });
      expect(messages[1]).toMatchObject({
        kind: "error",
        message: expect.stringMatching(/None of the training photos/),
      });
    });
  });
});
