/** Kits of methods that no bundled kit has are added, trained and used. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import * as given from "./studio";

const METHODS = ["bias", "tinytl", "lora", "repnet"];
/** Small kits, of a network without pretrained weights. */
const COMPILE = `
import sys
import torch
import pocketune

for method in sys.argv[2:]:
    torch.manual_seed(0)
    network = pocketune.create_network("mobilenet_v2", weights=None, classes=3, width=0.35)
    adapted = pocketune.adapt(network, pocketune.create_method(method))
    pocketune.compile(adapted, f"{sys.argv[1]}/{method}.zip", batch=8, size=64)
`;

const hasTorch =
  !given.missing && spawnSync(given.PYTHON, ["-c", "import torch, onnx"]).status === 0;

let browser: Browser;
let studio: given.Studio;
let folder: string;

beforeAll(async () => {
  if (!hasTorch) return;
  folder = mkdtempSync(join(tmpdir(), "methods-"));
  const made = spawnSync(given.PYTHON, ["-c", COMPILE, folder, ...METHODS], { encoding: "utf8" });
  if (made.status !== 0) throw new Error(made.stderr);
  [browser, studio] = await Promise.all([given.openBrowser(false), given.startStudio()]);
}, 900_000);
afterAll(async () => {
  await browser?.close();
  studio?.stop();
  if (folder) rmSync(folder, { recursive: true, force: true });
});

describe.skipIf(!hasTorch)("a kit of", () => {
  it.each(METHODS)("%s trains, predicts, and gives a run for the command line", async (method) => {
    const page = await given.openPage(browser, studio.url, { acceptDownloads: true });
    const classes = given.photos(10);
    await given.collect(page, classes);
    await given.goTo(page, "Train");
    await given.choose(page, "Add a kit (.zip)", join(folder, `${method}.zip`));
    await page.getByText(`The kit ${method} was checked and added.`).waitFor();
    await given.train(page, method, 1);
    await given.trained(page);
    const loss = page.getByRole("img", { name: /^Loss of each step: [3-9] points/ });
    await expect.poll(() => loss.count()).toBe(1);
    await given.goTo(page, "Take along");
    await given.save(page, folder, "run.zip");
    await given.save(page, folder, "photos.zip");
    const evaluated = given.output(folder, "evaluate", "run.zip", "photos.zip");
    expect(evaluated).toMatch(/^top-1 [\d.]+%.* of 6 photos/);
    expect(page.errors).toEqual([]);
    await page.context().close();
  });
});
