/** The step of a kit on a GPU, or on a processor that takes the place of one. */
import { existsSync } from "node:fs";
import { rm } from "node:fs/promises";
import { type Browser, chromium, type Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Harness } from "./engine.harness";
import { CHROMIUM, harnessFolder, SITE } from "./harness";
import { serve, type Served } from "./serve";

declare const window: { harness: Harness };

const missing = !existsSync(CHROMIUM) || !existsSync(SITE);
const SOFTWARE = ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"];

describe.skipIf(missing)("WebGPU", () => {
  let browser: Browser;
  let folder: string;
  let served: Served;
  let page: Page;

  beforeAll(async () => {
    folder = await harnessFolder("engine.harness.ts");
    served = await serve(folder, true);
    const args = ["--no-sandbox", "--enable-features=Vulkan", ...SOFTWARE];
    browser = await chromium.launch({ executablePath: CHROMIUM, args });
    page = await browser.newPage();
    await page.goto(`${served.url}/index.html`);
    await page.waitForFunction(() => "harness" in window);
  });

  afterAll(async () => {
    await browser?.close();
    served?.close();
    await rm(folder, { recursive: true, force: true });
  });

  test.for(["frozen", "whole", "last", "blocks"])(
    "computes the loss and gradients of %s as WebAssembly does",
    { timeout: 360_000 },
    async (name, { skip }) => {
      const found = await page.evaluate((name) => window.harness.compareDevices(name), name);
      if (!found) return skip("this browser has no adapter of WebGPU");
      expect(found.tried).toEqual([true, true]);
      expect(found.agree).toBe(true);
      expect(found.choice.device).toBe("webgpu");
    },
  );
});
