/** What is missing or broken is told in one sentence, and the page goes on where it can. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Browser, BrowserContext, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import * as given from "./studio";

const { addTo, collect, goTo, missing, openPage, photos, train, trained } = given;

const KIT = join(import.meta.dirname, "../../src/pocketune/kit/bundled/last.zip");

let browser: Browser;
let studio: given.Studio;

beforeAll(async () => {
  if (missing) return;
  // Without the made camera, which is that of a machine that has none.
  [browser, studio] = await Promise.all([given.openBrowser(false), given.startStudio()]);
});
afterAll(async () => {
  await browser?.close();
  studio?.stop();
});

/** What the page's alert says, which is a sentence; the page must not have thrown. */
async function told(page: Page & { errors: string[] }): Promise<string> {
  const alert = page.getByRole("alert").locator("p");
  await alert.first().waitFor();
  await expect.poll(() => alert.count()).toBe(1);
  const said = await alert.innerText();
  expect(said).toMatch(/^[^\n]*[.!?]$/);
  expect(page.errors).toEqual([]);
  return said;
}

async function addKit(page: Page, name: string, buffer: Buffer): Promise<void> {
  const waiting = page.waitForEvent("filechooser");
  await page.getByRole("button", { name: "Add a kit (.zip)" }).click();
  await (await waiting).setFiles({ name, mimeType: "application/zip", buffer });
}

describe.skipIf(missing)("one sentence says that there is", () => {
  let page: Awaited<ReturnType<typeof openPage>>;
  let context: BrowserContext;

  const open = async (options = {}) => {
    context = await browser.newContext(options);
    page = await openPage(context, studio.url);
  };

  it("no camera", async () => {
    await open();
    await page.getByRole("button", { name: "Camera" }).first().click();
    expect(await told(page)).toMatch(/^No camera was found on this device/);
    await addTo(page, 0, photos(2)[0]!.files); // files still are taken
    await context.close();
  });

  it("no leave to use the camera", async () => {
    await open();
    await page.evaluate(() => {
      navigator.mediaDevices.getUserMedia = () =>
        Promise.reject(new DOMException("", "NotAllowedError"));
    });
    await page.getByRole("button", { name: "Camera" }).first().click();
    expect(await told(page)).toMatch(/^The page may not use the camera; allow it/);
    await context.close();
  });

  it("no room for photos", async () => {
    context = await browser.newContext();
    const blank = await context.newPage();
    const session = await context.newCDPSession(blank);
    const origin = new URL(studio.url).origin;
    // What the page keeps of itself, to work offline, counts too.
    await session.send("Storage.overrideQuotaForOrigin", { origin, quotaSize: 12_000_000 });
    page = await openPage(context, studio.url);
    await addTo(page, 0, photos(1)[0]!.files);
    const column = page.locator(".column").first();
    const noise = Buffer.from(crypto.getRandomValues(new Uint8Array(60_000)));
    const photo = given.photo("large.png", [1, 2, 3]);
    // What follows the end of a photo is kept with it.
    const buffer = Buffer.concat([photo.buffer, ...Array.from({ length: 400 }, () => noise)]);
    await column.locator("input[type=file]").setInputFiles([{ ...photo, buffer }]);
    expect(await told(page)).toMatch(/^There is no room left for this page; delete photos/);
    await column.getByText("1 photo", { exact: true }).waitFor(); // what was there is there
    await context.close();
  });

  it("no storage", async () => {
    context = await browser.newContext();
    await context.addInitScript(() => {
      IDBFactory.prototype.open = () => {
        throw new DOMException("private", "SecurityError");
      };
    });
    page = Object.assign(await context.newPage(), { errors: [] });
    await page.goto(studio.url);
    expect(await told(page)).toMatch(/^This browser keeps nothing for the page/);
    await context.close();
  });

  it("a broken kit", async () => {
    await open();
    await goTo(page, "Train");
    const kit = readFileSync(KIT);
    const flipped = Buffer.from(kit);
    flipped[flipped.length >> 1]! ^= 0xff;
    for (const [name, buffer, said] of [
      ["flipped.zip", flipped, /flipped.zip.* damaged|flipped.zip.* wrong/],
      ["cut.zip", kit.subarray(0, kit.length >> 1), /^cut.zip is not a .zip, or is cut off/],
      ["text.zip", Buffer.from("hello"), /^text.zip is not a .zip/],
    ] as const) {
      await addKit(page, name, buffer);
      expect(await told(page)).toMatch(said);
      await page.getByRole("button", { name: "Close" }).click();
    }
    await expect.poll(() => page.getByRole("radio").count()).toBe(2);
    await addKit(page, "good.zip", kit);
    expect(await told(page)).toMatch(/^The kit \w+ was checked and added/);
    await context.close();
  });
});

describe.skipIf(missing)("a run that fails", () => {
  /** A run that is paused, and so has a checkpoint. */
  async function paused(context: BrowserContext) {
    const page = await openPage(context, studio.url);
    await collect(page, photos(10));
    await train(page, "last", given.ENDLESS);
    await page.getByRole("heading", { name: /^Epoch ([3-9]|\d\d+) of/ }).waitFor();
    await page.getByRole("button", { name: "Pause" }).click();
    await page.getByRole("heading", { name: "Paused" }).waitFor();
    return page;
  }

  async function goesOn(page: Page): Promise<void> {
    const notice = page.getByText(/^A run was interrupted. It can go on from epoch \d+ of/);
    await notice.waitFor();
    expect(Number(/epoch (\d+)/.exec(await notice.innerText())![1])).toBeGreaterThan(2);
    await page.getByRole("button", { name: "Go on" }).click();
    await page.getByRole("heading", { name: /^Epoch \d+ of/ }).waitFor();
    await expect.poll(() => page.getByRole("alert").innerText()).toBe("");
    await page.getByRole("button", { name: "Stop and keep the best" }).click();
    await trained(page);
    await page.reload();
    await page.getByRole("heading", { level: 2 }).first().waitFor();
    await goTo(page, "Take along");
    await page.getByRole("button", { name: "Download run.zip" }).waitFor();
  }

  it("by a loss that is not finite keeps the best values before", async () => {
    const page = await openPage(browser, studio.url);
    await collect(page, photos(10));
    await goTo(page, "Train");
    await page.getByText("Settings", { exact: true }).click();
    await page.getByLabel("Learning rate", { exact: true }).fill("10");
    await page.getByLabel("Optimizer").selectOption("sgd");
    await train(page, "blocks", 20);
    await trained(page);
    expect(await told(page)).toMatch(
      /is not finite: start again with a learning rate lower than 10\. The best .* are kept\.$/,
    );
    await goTo(page, "Take along");
    await page.getByRole("button", { name: "Download run.zip" }).waitFor();
    await page.context().close();
  });

  it("in a step goes on from its checkpoint", async () => {
    const context = await browser.newContext();
    await given.keepWorkers(context);
    const page = await paused(context);
    await given.workerSays(page, { kind: "error", message: "The run has failed: out of memory" });
    expect(await told(page)).toBe("The run has failed: out of memory.");
    await goTo(page, "Collect"); // where the message is gone
    await goTo(page, "Train");
    await page.getByText("The run has failed: out of memory.").waitFor();
    await goesOn(page);
    await expect.poll(() => page.getByText("The run has failed: out of memory.").count()).toBe(0);
    await context.close();
  });

  it("is discarded or replaced only if that is confirmed", async () => {
    const context = await browser.newContext();
    const page = await paused(context);
    await page.reload();
    const notice = page.getByText(/^A run was interrupted/);
    await notice.waitFor();
    page.removeAllListeners("dialog");
    const asked: string[] = [];
    page.on("dialog", (dialog) => {
      asked.push(dialog.message());
      void dialog.dismiss();
    });
    await goTo(page, "Collect");
    await addTo(page, 0, [given.photo("new.png", [1, 2, 3])]);
    await goTo(page, "Train");
    await page.getByText(/^Since it began, 1 photo added. It goes on with/).waitFor();
    await page.getByRole("button", { name: "Discard" }).click();
    await page.getByRole("button", { name: "Train", exact: true }).click();
    expect(asked).toEqual([
      expect.stringMatching(/^Discard what the interrupted run has learned/),
      expect.stringMatching(/^A new run takes the place of the interrupted one/),
    ]);
    await page.reload();
    await notice.waitFor();
    await context.close();
  });

  it("to keep its result gives it again once there is room", async () => {
    const context = await browser.newContext();
    const page = await paused(context);
    await page.evaluate(() => {
      const { prototype } = IDBObjectStore;
      const { put } = prototype;
      prototype.put = () => {
        throw new DOMException("", "QuotaExceededError");
      };
      Object.assign(window, { makeRoom: () => (prototype.put = put) });
    });
    await page.getByRole("button", { name: "Stop and keep the best" }).click();
    expect(await told(page)).toMatch(/^There is no room left for this page/);
    await page.getByRole("heading", { name: "Your network is ready" }).waitFor(); // in this tab
    await page.evaluate(() => (window as unknown as { makeRoom(): void }).makeRoom());
    await goesOn(page);
    await context.close();
  });
});

describe.skipIf(missing)("a page without threads", () => {
  it("trains with one", async () => {
    const context = await browser.newContext();
    // As in a private window, so that no service worker adds the headers.
    await context.addInitScript(() => {
      Object.defineProperty(Navigator.prototype, "serviceWorker", { value: undefined });
    });
    await context.route("**/*", async (route) => {
      const response = await route.fetch();
      const headers = { ...response.headers() };
      delete headers["cross-origin-opener-policy"];
      delete headers["cross-origin-embedder-policy"];
      await route.fulfill({ response, headers });
    });
    const page = await openPage(context, studio.url);
    expect(await page.evaluate(() => crossOriginIsolated)).toBe(false);
    await collect(page, photos(3));
    await goTo(page, "Train");
    await page.getByText(/^One thread computes, as the browser has not isolated this/).waitFor();
    await train(page, "last", 1);
    await trained(page);
    expect(page.errors).toEqual([]);
    await context.close();
  });
});
