/** From photos to files that the command line uses, and back; and a tab that is killed. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { predictAll } from "./predictions";
import * as given from "./studio";

const { collect, goTo, missing, openPage, photos, train, trained } = given;

const TOLERANCE = 1e-4;
const EACH = 30;

let browser: Browser;
let studio: given.Studio;
let folder: string;

beforeAll(async () => {
  if (missing) return;
  folder = mkdtempSync(join(tmpdir(), "journey-"));
  [browser, studio] = await Promise.all([given.openBrowser(), given.startStudio()]);
});
afterAll(async () => {
  await browser?.close();
  studio?.stop();
  if (folder) rmSync(folder, { recursive: true, force: true });
});

/** What a command prints, in the folder of the test. */
const pocketune = (...options: string[]) => given.output(folder, ...options);

interface Told {
  image: string;
  classes: { class: string; probability: number }[];
}

/** The probabilities that the command line gives, by file and class. */
function told(...options: string[]): Map<string, Map<string, number>> {
  const lines = pocketune("predict", ...options, "--json", "--top", "3")
    .trim()
    .split("\n");
  return new Map(
    lines
      .map((line) => JSON.parse(line) as Told)
      .map(({ image, classes }) => [
        image,
        new Map(classes.map((each) => [each.class, each.probability])),
      ]),
  );
}

describe.skipIf(missing)("a project", () => {
  let page: Awaited<ReturnType<typeof openPage>>;
  const requests: string[] = [];
  /** What the page says of its run. */
  let said: string;
  const [red, green] = photos(EACH) as [given.Class, given.Class];
  const files = [...red.files.slice(0, 3), ...green.files.slice(0, 3)];

  beforeAll(async () => {
    if (missing) return;
    const context = await browser.newContext({ acceptDownloads: true });
    context.on("request", (request) => requests.push(request.url()));
    page = await openPage(context, studio.url);
    for (const file of files) writeFileSync(join(folder, file.name), file.buffer);
  });

  it("is collected from files and a camera", async () => {
    await collect(page, [red, green]);
    await page.getByRole("button", { name: "Add a class" }).click();
    const camera = page.locator(".column").nth(2);
    await camera.getByRole("button", { name: "Camera" }).click();
    await page.waitForFunction(() => document.querySelector("video")!.readyState > 1);
    const count = async () => Number.parseInt(await camera.locator(".count").innerText()) || 0;
    // The made camera repeats itself, so that one recording has few distinct frames.
    while ((await count()) < EACH) {
      const before = await count();
      await page.locator("button.record:focus").waitFor();
      await page.keyboard.down("Space");
      await page.getByText(/Recording: ([6-9]|\d\d+) photos/).waitFor();
      await page.keyboard.up("Space");
      await page.getByRole("button", { name: "Hold to record" }).waitFor();
      await expect.poll(count).toBeGreaterThan(before);
    }
    await page.getByRole("button", { name: "Close camera" }).click();
  });

  it("is trained", async () => {
    await train(page, "last", 3);
    await trained(page);
    expect(page.errors).toEqual([]);
    const accuracy = page.locator("dl div", { hasText: "Best accuracy" }).locator("dd");
    expect(Number.parseFloat(await accuracy.innerText())).toBeGreaterThan(90);
    said = await page.getByText(/^It recognizes/).innerText();
  });

  it("gives files with which the command line predicts the same", async () => {
    await goTo(page, "Take along");
    for (const name of ["run.zip", "delta.safetensors", "model.onnx", "photos.zip"]) {
      await given.save(page, folder, name);
    }
    const own = await predictAll(page, files);
    const names = files.map(({ name }) => name);
    for (const options of [
      ["run.zip", ...names],
      ["--kit", "last", "--delta", "delta.safetensors", ...names],
    ]) {
      const theirs = told(...options);
      expect([...theirs.keys()]).toEqual(names);
      for (const [name, probabilities] of own) {
        for (const [label, probability] of probabilities) {
          const difference = Math.abs(theirs.get(name)!.get(label)! - probability);
          expect(difference).toBeLessThan(TOLERANCE);
        }
      }
    }
    const [, share, heldOut] = /recognizes (\S+)% of (\d+) held-out/.exec(said)!;
    const evaluated = pocketune("evaluate", "run.zip", "photos.zip");
    expect(evaluated).toMatch(`top-1 ${Number(share).toFixed(1)}%`);
    expect(evaluated).toMatch(` of ${heldOut} photos\n`);
    pocketune("report", "run.zip", "--photos", "photos.zip", "--out", "report.html");
    expect(readFileSync(join(folder, "report.html"), "utf8")).toMatch(/>Mistakes</);
    pocketune("export", "run.zip", "--out", "theirs.onnx");
    const same = "import onnx; print(onnx.load('model.onnx') == onnx.load('theirs.onnx'))";
    const compared = spawnSync(given.PYTHON, ["-c", same], { cwd: folder, encoding: "utf8" });
    expect(compared.stdout.trim() || compared.stderr).toMatch(/^True$|No module named 'onnx'/);
  });

  it("is trained further by the command line, and comes back", async () => {
    const options = ["photos.zip", "--kit", "run.zip", "--epochs", "1", "--out", "more"];
    pocketune("train", ...options);
    pocketune("delta", "save", "more", "--out", "more.safetensors");
    const zip = "import shutil; shutil.make_archive('more', 'zip', 'more')";
    expect(spawnSync(given.PYTHON, ["-c", zip], { cwd: folder }).status).toBe(0);
    const theirs = told("more", ...files.map(({ name }) => name));
    for (const name of ["more.zip", "more.safetensors"]) {
      await given.choose(page, "Open a file", join(folder, name));
      await page.getByText(`${name} is open; see “Use”.`).waitFor();
      for (const [file, probabilities] of await predictAll(page, files)) {
        for (const [label, probability] of probabilities) {
          const difference = Math.abs(theirs.get(file)!.get(label)! - probability);
          expect(difference).toBeLessThan(TOLERANCE);
        }
      }
    }
  });

  it("is trained further in the page", async () => {
    await goTo(page, "Train");
    await page.getByLabel("Begin with what more.safetensors has learned").check();
    await page.getByLabel("Epochs").fill("1");
    await page.getByRole("button", { name: "Train again" }).click();
    await page.getByRole("button", { name: "Pause" }).waitFor();
    await trained(page);
    expect(page.errors).toEqual([]);
    const accuracy = page.locator("dl div", { hasText: "Best accuracy" }).locator("dd");
    expect(Number.parseFloat(await accuracy.innerText())).toBeGreaterThan(90);
  });

  it("asks nothing of any other place", () => {
    const own = new URL(studio.url).origin;
    expect(requests.length).toBeGreaterThan(5);
    expect(requests.filter((url) => !/^(blob|data):/.test(url) && !url.startsWith(own))).toEqual(
      [],
    );
  });
});

describe.skipIf(missing)("a browser that is killed in mid-training", () => {
  it("goes on where it was, until it is stopped with the best so far", async () => {
    const profile = join(folder, "profile");
    const page = await openPage(await given.openProfile(profile), studio.url);
    await collect(page, photos(12));
    await train(page, "blocks", given.ENDLESS);
    await page.getByRole("img", { name: /^Accuracy.*: ([3-9]|\d\d+) points/ }).waitFor();
    await page.getByRole("button", { name: "Pause" }).click();
    await page.getByRole("heading", { name: "Paused" }).waitFor();
    await page.getByRole("button", { name: "Go on" }).click(); // a checkpoint has been kept
    await page.getByRole("heading", { name: /^Epoch \d+ of/ }).waitFor();
    await page.getByRole("button", { name: "Pause" }).waitFor();
    await given.kill(page.context());

    const again = await openPage(await given.openProfile(profile), studio.url);
    const notice = again.getByText(/A run was interrupted. It can go on from epoch \d+ of/);
    await notice.waitFor();
    expect(Number(/epoch (\d+)/.exec(await notice.innerText())![1])).toBeGreaterThan(1);
    await expect.poll(() => given.stored(again, "features")).toBeGreaterThan(0);
    await again.getByRole("button", { name: "Go on" }).click();
    await again.getByRole("heading", { name: /^Epoch \d+ of/ }).waitFor();
    await again.getByRole("button", { name: "Stop and keep the best" }).click();
    await trained(again);
    await expect.poll(() => given.stored(again, "features")).toBe(0);
    await again.reload();
    await goTo(again, "Take along");
    await again.getByRole("button", { name: "Download run.zip" }).waitFor();
    await again.context().close();
  });
});
