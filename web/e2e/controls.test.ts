/** What can be pressed, and when. */
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import * as given from "./studio";

const { collect, missing, openPage, photos, train } = given;

let browser: Browser;
let studio: given.Studio;

beforeAll(async () => {
  if (missing) return;
  [browser, studio] = await Promise.all([given.openBrowser(), given.startStudio()]);
});
afterAll(async () => {
  await browser?.close();
  studio?.stop();
});

describe.skipIf(missing)("the controls of a run", () => {
  it("are gone while its result is described", async () => {
    const context = await browser.newContext();
    await given.keepWorkers(context);
    const page = await openPage(context, studio.url);
    await collect(page, photos(10));
    await train(page, "blocks", given.ENDLESS);
    const useNow = page.getByRole("button", { name: "Use it now" });
    await useNow.waitFor();
    await page.getByRole("button", { name: "Pause" }).click();
    await page.getByRole("heading", { name: "Paused" }).waitFor();
    await given.workerSays(page, { kind: "phase", phase: "result" });
    await page.getByRole("heading", { name: "Looking at what it has learned" }).waitFor();
    const stop = page.getByRole("button", { name: "Stop and keep the best" });
    for (const gone of [stop, useNow, page.getByRole("button", { name: "Go on" })]) {
      await expect.poll(() => gone.count()).toBe(0);
    }
    expect(page.errors).toEqual([]);
    await context.close();
  });
});
