/** Photos with attributes: from a table to files that the command line uses, and back. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import AxeBuilder from "@axe-core/playwright";
import { strToU8, zipSync } from "fflate";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { predictAll } from "./predictions";
import * as given from "./studio";

const { choose, goTo, missing, openPage, photo, trained } = given;

const TOLERANCE = 1e-4;
const KIT = "attributes";
const NAMES = ["red", "green", "blue"];
const COUNT = 40;

/** All combinations of three attributes in turn. */
const has = (number: number) => NAMES.map((_, i) => (number >> i) & 1);
const files = Array.from({ length: COUNT }, (_, i) => {
  const [red, green, blue] = has(i).map((present) => 10 + 110 * present);
  return photo(`${i}.png`, [red!, green!, blue!], i);
});
const table = ["file,red,green,blue", ...files.map(({ name }, i) => `${name},${has(i).join()}`)];
const archive = zipSync({
  ...Object.fromEntries(files.map(({ name, buffer }) => [name, buffer])),
  "colors.csv": strToU8(table.join("\n")),
});
const some = files.slice(0, 4);

let browser: Browser;
let studio: given.Studio;
let folder: string;
let page: Awaited<ReturnType<typeof openPage>>;

beforeAll(async () => {
  if (missing) return;
  folder = mkdtempSync(join(tmpdir(), "attributes-"));
  for (const { name, buffer } of some) writeFileSync(join(folder, name), buffer);
  [browser, studio] = await Promise.all([given.openBrowser(false), given.startStudio()]);
  page = await openPage(browser, studio.url, { acceptDownloads: true });
});
afterAll(async () => {
  await browser?.close();
  studio?.stop();
  if (folder) rmSync(folder, { recursive: true, force: true });
});

const column = (name: string) => page.locator(".column").filter({ has: field(name) });
const field = (name: string) => page.locator(`[aria-label="Photos of ${name}"]`);
const violations = async (of: Page) =>
  (await new AxeBuilder({ page: of }).analyze()).violations.map(({ id }) => id);

/** The probabilities that the command line gives, by attribute. */
function told(...options: string[]): Map<string, number>[] {
  const lines = given
    .output(folder, "predict", ...options, "--json")
    .trim()
    .split("\n");
  return lines.map((line) => {
    const { attributes } = JSON.parse(line) as {
      attributes: { attribute: string; probability: number }[];
    };
    return new Map(attributes.map((each) => [each.attribute, each.probability]));
  });
}

async function expectSame(theirs: Map<string, number>[]): Promise<void> {
  const own = [...(await predictAll(page, some)).values()];
  expect(theirs).toHaveLength(own.length);
  own.forEach((probabilities, i) => {
    expect(probabilities.size).toBe(NAMES.length);
    for (const [name, value] of probabilities) {
      expect(Math.abs(theirs[i]!.get(name)! - value)).toBeLessThan(TOLERANCE);
    }
  });
}

describe.skipIf(missing)("photos with attributes", () => {
  it("are read from a table", async () => {
    const file = { name: "colors.zip", mimeType: "application/zip", buffer: Buffer.from(archive) };
    await choose(page, "Import a CSV or .zip", file);
    await page.getByText(`${COUNT} photos with 3 attributes.`).waitFor();
    for (const name of NAMES) await column(name).getByText("20 photos").waitFor();
    await column("No attribute").getByText("5 photos").waitFor();
    await expect.poll(() => page.getByLabel("A photo has").inputValue()).toBe("attributes");
  });

  it("are given attributes and lose them by the keyboard", async () => {
    const grid = column("No attribute").getByRole("listbox");
    await grid.press("Home");
    await grid.press("Space");
    await column("No attribute").getByLabel("Also has").selectOption("green");
    await column("No attribute").getByRole("button", { name: "Give" }).press("Enter");
    await column("green").getByText("21 photos").waitFor();
    await column("No attribute").getByText("4 photos").waitFor();
    for (const name of NAMES) {
      const grid = column(name).getByRole("listbox");
      await grid.press("End"); // at a photo that has several
      const isInside = () =>
        grid.evaluate((own) => {
          const active = document.getElementById(own.getAttribute("aria-activedescendant")!);
          return own.contains(active);
        });
      await expect.poll(isInside).toBe(true);
    }
    await column("green").getByRole("listbox").press("Home");
    await column("green").getByRole("listbox").press("Space");
    await expect.poll(() => violations(page)).toEqual([]);
    await column("green").getByRole("button", { name: "Take off" }).press("Enter");
    await column("No attribute").getByText("5 photos").waitFor();
    await page.reload();
    await column("green").getByText("20 photos").waitFor();
  });

  it("are trained with the kit for them", async () => {
    await goTo(page, "Train");
    await expect.poll(() => page.getByRole("radio").count()).toBe(1);
    await given.train(page, "attributes", 5);
    await trained(page);
    await page
      .getByText(/It tells [\d.]+% of the attributes of 8 held-out photos/)
      .first()
      .waitFor();
    const accuracy = page.locator("dl div", { hasText: "Best accuracy" }).locator("dd");
    expect(Number.parseFloat(await accuracy.innerText())).toBeGreaterThan(90);
    expect(page.errors).toEqual([]);
  });

  it("are told one by one", async () => {
    await goTo(page, "Use");
    const rows = page.getByRole("region", { name: "Held-out photos by attribute" });
    await expect.poll(() => rows.getByRole("rowheader").allInnerTexts()).toEqual(NAMES);
    await page.locator("section:visible input[type=file]").setInputFiles(some[3]!);
    const list = page.getByRole("list", { name: "Predictions" });
    await list.getByText("3.png").waitFor();
    await list.getByText(/%$/).nth(2).waitFor();
    await expect.poll(() => violations(page)).toEqual([]);
  });

  it("give files with which the command line predicts the same", async () => {
    await goTo(page, "Take along");
    for (const name of ["run.zip", "delta.safetensors", "model.onnx", "photos.zip"]) {
      await given.save(page, folder, name);
    }
    const names = some.map(({ name }) => name);
    await expectSame(told("run.zip", ...names));
    await expectSame(told("--kit", KIT, "--delta", "delta.safetensors", ...names));
    const evaluated = given.output(folder, "evaluate", "run.zip", "photos.zip");
    expect(evaluated).toMatch(/^mean accuracy [\d.]+% of 3 attributes of 8 photos/);
  });

  it("are trained further by the command line, and come back", async () => {
    const options = ["photos.zip", "--kit", "run.zip", "--epochs", "1", "--out", "more"];
    given.output(folder, "train", ...options);
    const zip = "import shutil; shutil.make_archive('more', 'zip', 'more')";
    expect(spawnSync(given.PYTHON, ["-c", zip], { cwd: folder }).status).toBe(0);
    await choose(page, "Open a file", join(folder, "more.zip"));
    await page.getByText("more.zip is open; see “Use”.").waitFor();
    await expectSame(told("more", ...some.map(({ name }) => name)));
    await goTo(page, "Use");
    await page.getByText("In use: more.zip, with 3 attributes.").waitFor();
    await page.context().close();
  });

  it("become photos of classes only where each has one", async () => {
    const other = await openPage(browser, studio.url);
    await other.getByLabel("A photo has").selectOption("attributes");
    await other.getByRole("button", { name: "Add an attribute" }).waitFor();
    await given.addTo(other, 2, some.slice(0, 1)); // those without an attribute
    await other.getByLabel("A photo has").selectOption("classification");
    await other.getByText("1 photo has several attributes or none").waitFor();
    await expect.poll(() => other.getByLabel("A photo has").inputValue()).toBe("attributes");
    await other.context().close();
  });
});
