/**
 * Makes the picture of the README: the page on a phone, when it has collected, trained and predicted.
 * `npm run picture -- PHOTOS OUT.webp`, from photos in class folders.
 */
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import type { Browser, Page } from "playwright-core";
import * as given from "./studio";

const PHONE = { viewport: { width: 430, height: 600 }, deviceScaleFactor: 1.5 };
/** Between two screens, in pixels of the picture. */
const GAP = 24;
const CLASSES = 3;
/** Photos of each class that are collected; the next one is predicted. */
const EACH = 30;
const EPOCHS = 30;
/** Milliseconds to wait: a slow machine takes as long as it takes. */
const NO_LIMIT = 0;

async function main(photos: string, out: string): Promise<void> {
  const names = readdirSync(photos).sort().slice(0, CLASSES);
  const all = names.map((name) => ({ name, files: filesOf(join(photos, name)) }));
  const [browser, studio] = await Promise.all([given.openBrowser(), given.startStudio()]);
  try {
    const page = await given.openPage(browser, studio.url, PHONE);
    const shots = [
      await collecting(
        page,
        all.map(({ name, files }) => ({ name, files: files.slice(0, EACH) })),
      ),
      await training(page),
      await predicting(
        page,
        all.map(({ files }) => files[EACH]!),
      ),
    ];
    writeFileSync(out, await sideBySide(browser, shots));
  } finally {
    await browser.close();
    studio.stop();
  }
}

function filesOf(folder: string): given.MadeFile[] {
  const names = readdirSync(folder)
    .sort()
    .slice(0, EACH + 1);
  return names.map((name) => {
    return { name, mimeType: "image/jpeg", buffer: readFileSync(join(folder, name)) };
  });
}

async function collecting(page: Page, classes: given.Class[]): Promise<Buffer> {
  await given.collect(page, classes);
  return screen(page, ".summary");
}

async function training(page: Page): Promise<Buffer> {
  await given.train(page, "blocks", EPOCHS);
  await given.trained(page, NO_LIMIT);
  return screen(page, ".run");
}

async function predicting(page: Page, photos: given.MadeFile[]): Promise<Buffer> {
  await page.getByRole("button", { name: "Try it" }).click();
  await page.locator("section:visible input[type=file]").setInputFiles(photos);
  const results = page.getByRole("list", { name: "Predictions" });
  await results
    .getByText(/%$/)
    .nth(photos.length * CLASSES - 1)
    .waitFor({ timeout: NO_LIMIT });
  return screen(page, ".results");
}

/** The page with an element right below its header. */
async function screen(page: Page, first: string): Promise<Buffer> {
  await page.locator(`section:visible ${first}`).evaluate((element) => {
    element.scrollIntoView(); // a part of the header scrolls away
    const header = document.querySelector(".top")!.getBoundingClientRect();
    scrollBy(0, element.getBoundingClientRect().top - header.bottom - 16);
    (document.activeElement as HTMLElement).blur();
  });
  await page.waitForFunction(() =>
    [...document.querySelectorAll(".thumbnail img")].every((each) => each.hasAttribute("src")),
  );
  return page.screenshot();
}

/** The screens, each with a thin frame, in one picture. */
async function sideBySide(browser: Browser, shots: Buffer[]): Promise<Buffer> {
  const page = await browser.newPage();
  const sources = shots.map((shot) => `data:image/png;base64,${shot.toString("base64")}`);
  const made = await page.evaluate(draw, { sources, gap: GAP });
  return Buffer.from(made.split(",")[1]!, "base64");
}

/** Runs in the page. */
async function draw({ sources, gap }: { sources: string[]; gap: number }): Promise<string> {
  const images = sources.map((src) => Object.assign(new Image(), { src }));
  await Promise.all(images.map((image) => image.decode()));
  const { width, height } = images[0]!;
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width: images.length * (width + gap) - gap, height });
  const context = canvas.getContext("2d")!;
  context.strokeStyle = "#c8cace";
  context.lineWidth = 2;
  images.forEach((image, i) => {
    context.drawImage(image, i * (width + gap), 0);
    context.strokeRect(i * (width + gap) + 1, 1, width - 2, height - 2);
  });
  return canvas.toDataURL("image/webp", 0.85);
}

const [photos, out] = process.argv.slice(2).map((path) => resolve(process.env["INIT_CWD"]!, path));
if (!photos || !out) throw new Error("give a folder of photos and the file to write");
await main(photos, out);
