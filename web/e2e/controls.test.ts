/** What can be pressed, and when. */
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import * as given from "./studio";

const { BLUE, collect, goTo, missing, openPage, photo, photos, train } = given;

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

  it("keep the focus while photos are imported", async () => {
    const page = await openPage(browser, studio.url);
    await collect(page, photos(2));
    await goTo(page, "Train");
    const focused = page.locator(".controls button:focus");
    await page.getByRole("button", { name: "Train", exact: true }).focus();
    await expect.poll(() => focused.innerText()).toBe("Train");
    await focused.evaluate((each) => (each.dataset["same"] = "yes"));
    const column = page.locator(".column").first();
    await column.locator("input[type=file]").setInputFiles([photo("new.png", BLUE)]);
    await expect.poll(() => column.locator(".count").textContent()).toBe("3 photos");
    await expect.poll(() => focused.getAttribute("data-same")).toBe("yes");
    await page.context().close();
  });
});

describe.skipIf(missing)("a file that is taken along", () => {
  it("is written once, whatever is changed meanwhile", async () => {
    const page = await openPage(browser, studio.url);
    await collect(page, photos(2));
    await goTo(page, "Take along");
    await page.evaluate(() => {
      Blob.prototype.arrayBuffer = () => new Promise(() => undefined); // photos never are read
    });
    await page.getByRole("button", { name: "Download photos.zip" }).click();
    const writing = page.getByRole("button", { name: "Writing the file", disabled: true });
    await writing.waitFor();
    await goTo(page, "Collect");
    await page.getByRole("button", { name: "Delete class" }).last().click();
    await page.getByText("4 photos in 2 classes").waitFor();
    await goTo(page, "Take along");
    await writing.waitFor();
    await page.context().close();
  });
});
