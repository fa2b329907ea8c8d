/** The page without a run: whoever uses it, whatever is dropped, wherever it lies. */
import { mkdtempSync, rmSync } from "node:fs";
import { readFile, rename, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import AxeBuilder from "@axe-core/playwright";
import { strToU8, zipSync } from "fflate";
import type { Browser, Locator, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import * as given from "./studio";

const { addTo, BLUE, collect, goTo, GREEN, missing, openPage, photo, photos, RED, train } = given;

if (missing) console.warn(`skipped: ${missing}`);
const KIT = join(import.meta.dirname, "../tests/fixtures/whole.zip");

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

/** Open a kit as a network to use. */
async function openKit(page: Page): Promise<void> {
  await goTo(page, "Take along");
  await given.choose(page, "Open a file", KIT);
  await page.getByText("whole.zip is open").waitFor();
}

/** What axe finds, in light and in dark. */
async function violations(page: Page): Promise<string[]> {
  await page.emulateMedia({ colorScheme: "light" });
  const all = await new AxeBuilder({ page }).analyze();
  await page.emulateMedia({ colorScheme: "dark" });
  const dark = await new AxeBuilder({ page }).withRules("color-contrast").analyze();
  const found = [...all.violations, ...dark.violations];
  return found.map((each) => `${each.id}: ${each.nodes[0]?.html}`);
}

describe.skipIf(missing)("for everybody", () => {
  it("axe finds nothing", async () => {
    const page = await openPage(browser, studio.url);
    await expect.poll(() => violations(page)).toEqual([]);
    for (const part of ["Train", "Use", "Take along"] as const) {
      await goTo(page, part);
      await expect.poll(() => violations(page)).toEqual([]);
    }
    await goTo(page, "Collect");
    await collect(page, photos(10));
    await page.getByRole("listbox").first().press("Space"); // a selection, with its buttons
    await page.getByRole("button", { name: "Camera" }).first().click();
    await page.getByRole("button", { name: "Hold to record" }).waitFor();
    await expect.poll(() => violations(page)).toEqual([]);
    await goTo(page, "Train");
    await page.getByText("Settings").click();
    await page.getByRole("spinbutton", { name: "Epochs" }).fill("1");
    await expect.poll(() => violations(page)).toEqual([]);
    await page.getByRole("button", { name: "Train", exact: true }).click();
    await page.getByRole("heading", { name: "Your network is ready" }).waitFor({ timeout: 90_000 });
    await expect.poll(() => violations(page)).toEqual([]);
    await page.getByRole("button", { name: "Try it" }).click();
    await page.getByRole("heading", { name: "Use", exact: true }).waitFor(); // not Train's own input
    await page.locator("section:visible input[type=file]").setInputFiles(photo("a.png", RED));
    await page.getByRole("list", { name: "Predictions" }).getByText("a.png").waitFor();
    await expect.poll(() => violations(page)).toEqual([]);
    expect(page.errors).toEqual([]);
    await page.context().close();
  });

  it("axe finds what is wrong in light or in dark", async () => {
    const page = await openPage(browser, studio.url);
    await page.evaluate(() => {
      const main = document.querySelector("main")!;
      main.append(document.createElement("input")); // without a name
      const pale = document.createElement("p");
      pale.className = "pale";
      pale.textContent = "hardly to be read in the dark";
      main.append(pale);
      const sheet = new CSSStyleSheet();
      sheet.replaceSync(
        "@media (prefers-color-scheme: dark) { .pale { color: #222; background: #333 } }",
      );
      document.adoptedStyleSheets = [sheet];
    });
    const found = await violations(page);
    expect(found.map((each) => each.split(":")[0]).sort()).toEqual(["color-contrast", "label"]);
    await page.context().close();
  });

  it("the content can be skipped to, in each part", async () => {
    const page = await openPage(browser, studio.url);
    await goTo(page, "Train");
    await page.getByRole("link", { name: "Skip to the content" }).press("Enter");
    await page.locator("main:focus").waitFor();
    expect(new URL(page.url()).hash).toBe("#train");
    await page.evaluate(async () => {
      const changed = new Promise((resolve) => addEventListener("hashchange", resolve));
      location.hash = "nowhere";
      await changed;
    });
    await expect.poll(() => page.locator("section:visible h2").allInnerTexts()).toEqual(["Train"]);
    await page.context().close();
  });

  it("a small screen scrolls down and not to the side", async () => {
    const page = await openPage(browser, studio.url, { viewport: { width: 320, height: 640 } });
    await collect(page, photos(3));
    for (const part of ["Train", "Use", "Take along", "Collect"] as const) {
      await goTo(page, part);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      expect([part, wide]).toEqual([part, 320]);
    }
    await page.context().close();
  });

  it("letters are as large as the browser is set to, also on a small screen", async () => {
    const large = await given.openBrowser(false, "--blink-settings=defaultFontSize=24");
    const page = await openPage(large, studio.url, { viewport: { width: 360, height: 640 } });
    const found = await page.evaluate(() => ({
      size: getComputedStyle(document.body).fontSize,
      width: document.documentElement.scrollWidth,
    }));
    expect(found).toEqual({ size: "24px", width: 360 });
    await large.close();
  });

  it("a phone does not zoom into its fields, as iOS does where letters have less than 16 pixels", async () => {
    const phone = { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true };
    const page = await openPage(browser, studio.url, phone);
    const sizes = await page
      .locator("input, select")
      .evaluateAll((fields) =>
        fields.map((each) => Number.parseFloat(getComputedStyle(each).fontSize)),
      );
    expect(sizes.length).toBeGreaterThan(8);
    expect(Math.min(...sizes)).toBeGreaterThanOrEqual(16);
    await page.context().close();
  });

  it("a small screen has room for an import, and for what it leaves out", async () => {
    const page = await openPage(browser, studio.url, { viewport: { width: 360, height: 640 } });
    const [{ files }] = photos(12) as [given.Class];
    await addTo(page, 0, files);
    await page.evaluate(() => {
      const decode = window.createImageBitmap;
      const isLooked = new Promise((resolve) => addEventListener("looked", resolve));
      let count = 0;
      window.createImageBitmap = async (photo: ImageBitmapSource) => {
        if (count++ > 8) await isLooked; // once the progress is shown
        return decode(photo);
      };
    });
    await page.locator(".column input[type=file]").first().setInputFiles(files);
    const bar = page.getByRole("progressbar");
    await expect.poll(async () => (await bar.boundingBox())?.width).toBeGreaterThan(100);
    await page.evaluate(() => void dispatchEvent(new Event("looked")));
    await page.getByText("12 files left out").waitFor();
    expect((await page.locator(".message").boundingBox())!.height).toBeLessThanOrEqual(320);
    await page.context().close();
  });

  it("what has the focus is not behind the header of a phone", async () => {
    const page = await openPage(browser, studio.url, { viewport: { width: 390, height: 844 } });
    await collect(page, photos(10));
    await train(page, "last", given.ENDLESS);
    const pause = page.getByRole("button", { name: "Pause" });
    await pause.waitFor();
    const { height } = (await page.getByRole("banner").boundingBox())!;
    await expect.poll(async () => (await pause.boundingBox())!.y).toBeGreaterThan(height);
    await page.context().close();
  });

  it("the keyboard selects, moves and deletes photos", async () => {
    const page = await openPage(browser, studio.url);
    await collect(page, photos(4));
    const grid = page.getByRole("listbox", { name: "Photos of red" });
    await grid.press("ArrowRight");
    await grid.press("Space");
    const selected = grid.getByRole("option", { selected: true });
    for (const [key, count] of [
      ["Shift+ArrowRight", 2],
      ["Shift+ArrowRight", 3],
      ["Shift+ArrowLeft", 2],
    ] as const) {
      await grid.press(key);
      await expect.poll(() => selected.count()).toBe(count);
    }
    await page.getByLabel("Move to").first().selectOption("green");
    await page.getByRole("button", { name: "Move", exact: true }).click();
    await page.getByText("6 photos", { exact: true }).waitFor();
    await grid.press("Delete");
    await page.getByText("1 photo", { exact: true }).waitFor();
    await page.reload();
    await page.getByText("6 photos", { exact: true }).waitFor();
    await page.getByText("1 photo", { exact: true }).waitFor();
    await page.context().close();
  });
});

describe.skipIf(missing)("collecting", () => {
  it("offers to move photos to the classes that there are", async () => {
    const page = await openPage(browser, studio.url);
    await collect(page, photos(2));
    await page.getByRole("listbox", { name: "Photos of red" }).press("Space");
    const others = page.getByLabel("Move to").first().getByRole("option");
    await expect.poll(() => others.allInnerTexts()).toEqual(["green", "blue"]);
    await page.getByRole("button", { name: "Delete class" }).last().click();
    await page.getByText("4 photos in 2 classes").waitFor();
    await expect.poll(() => others.allInnerTexts()).toEqual(["green"]);
    const field = page.getByLabel("Name of the class").last();
    await field.fill("lime");
    await field.press("Enter");
    await page.getByRole("button", { name: "Add a class" }).click();
    await page.getByRole("listbox", { name: "Photos of lime" }).waitFor();
    await expect.poll(() => others.allInnerTexts()).toEqual(["lime", "Class 3"]);
    for (let rest = 2; rest > 0; rest--) {
      await page.getByRole("button", { name: "Delete class" }).last().click();
      await expect.poll(() => page.locator(".column").count()).toBe(rest);
    }
    const move = page.getByRole("button", { name: "Move", exact: true });
    await expect.poll(() => move.count()).toBe(0);
    await page.reload();
    await page.getByRole("listbox", { name: "Photos of red" }).press("Space");
    await page.getByText("1 selected").waitFor();
    await expect.poll(() => move.count()).toBe(0);
    await page.context().close();
  });

  it("reads a .zip of class folders, and says what it leaves out", async () => {
    const page = await openPage(browser, studio.url);
    const archive = zipSync({
      "pets/cats/1.png": photo("", RED, 1).buffer,
      "pets/cats/2.png": photo("", RED, 2).buffer,
      "pets/dogs/1.png": photo("", BLUE).buffer,
      "pets/dogs/notes.txt": strToU8("no photo"),
      "pets/dogs/.hidden.png": strToU8("no photo either"),
    });
    await importFile(page, "pets.zip", Buffer.from(archive));
    await page.getByText("3 photos in 2 classes.").waitFor();
    const fields = page.getByLabel("Name of the class");
    const names = await fields.evaluateAll((all) =>
      all.map((each) => (each as HTMLInputElement).value),
    );
    expect(names).toEqual(["cats", "dogs"]);
    await page.getByText("pets/dogs/notes.txt: no photo that this browser can open").waitFor();
    await page.context().close();
  });

  it("reads a CSV with its photos", async () => {
    const page = await openPage(browser, studio.url);
    const table = "file,label,split\na.png,left,train\nb.png,right,val\n";
    const files = { "a.png": photo("", RED).buffer, "b.png": photo("", GREEN).buffer };
    await importFile(page, "x.zip", Buffer.from(zipSync({ ...files, "list.csv": strToU8(table) })));
    await page.getByText("2 photos in 2 classes.").waitFor();
    await page.context().close();
  });

  it.each([
    ["no.zip", Buffer.from("no archive"), "no.zip is not a .zip"],
    [
      "loose.zip",
      Buffer.from(zipSync({ "a.png": photo("", RED).buffer })),
      "Drop these photos onto a class",
    ],
    [
      "kit.zip",
      Buffer.from(zipSync({ "manifest.json": strToU8("{}"), "step.onnx": strToU8("") })),
      "manifest.json",
    ],
  ])("says one sentence about %s", async (name, buffer, said) => {
    const page = await openPage(browser, studio.url);
    await importFile(page, name, buffer);
    await page.getByRole("alert").getByText(said).waitFor();
    await goTo(page, "Use"); // where it would be out of place
    await expect.poll(() => page.getByRole("alert").innerText()).toBe("");
    expect(page.errors).toEqual([]);
    await page.context().close();
  });

  it("takes what is dropped onto a class, and what is pasted", async () => {
    const page = await openPage(browser, studio.url);
    const moved = (made: Buffer) =>
      page.evaluateHandle((data) => {
        const transfer = new DataTransfer();
        const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
        transfer.items.add(new File([bytes], "dropped.png", { type: "image/png" }));
        return transfer;
      }, made.toString("base64"));
    const second = page.locator(".column").nth(1);
    await second.dispatchEvent("drop", { dataTransfer: await moved(photo("a", RED).buffer) });
    await second.getByText("1 photo", { exact: true }).waitFor();
    await second.hover();
    await page.evaluate(
      (clipboardData) => {
        document.body.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true }));
      },
      await moved(photo("b", RED).buffer),
    );
    await second.getByText("2 photos", { exact: true }).waitFor();
    await page.context().close();
  });

  it("keeps a large photo smaller, with the values that it has, and white where it is clear", async () => {
    const page = await openPage(browser, studio.url);
    // A canvas of another color space says so in its file.
    const made = await page.evaluate(async () => {
      const canvas = document.createElement("canvas");
      canvas.width = canvas.height = 800;
      const context = canvas.getContext("2d", { colorSpace: "display-p3" })!;
      context.fillStyle = "color(display-p3 0.8 0.4 0.2)";
      context.fillRect(0, 0, 800, 400);
      return canvas.toDataURL("image/png").split(",")[1]!;
    });
    const file = { name: "a.png", mimeType: "image/png", buffer: Buffer.from(made, "base64") };
    await addTo(page, 0, [file]);
    const [side, top, bottom] = await page.evaluate(async () => {
      const blob = await new Promise<Blob>((resolve) => {
        const opening = indexedDB.open("pocketune-studio");
        opening.onsuccess = () => {
          const getting = opening.result.transaction("blobs").objectStore("blobs").get(1);
          getting.onsuccess = () => resolve(getting.result as Blob);
        };
      });
      const bitmap = await createImageBitmap(blob);
      const context = new OffscreenCanvas(512, 512).getContext("2d")!;
      context.drawImage(bitmap, 0, 0);
      const at = (y: number) => [...context.getImageData(256, y, 1, 1).data];
      return [bitmap.width, at(100), at(400)] as const;
    });
    expect([side, bottom]).toEqual([512, [255, 255, 255, 255]]);
    const off = [204, 102, 51].map((value, i) => Math.abs(top[i]! - value));
    expect(Math.max(...off)).toBeLessThan(4); // as JPEG
    await page.context().close();
  });

  it("takes photos that are given with a kit, and says which folders it leaves out", async () => {
    const page = await openPage(browser, studio.url);
    const both = { "manifest.json": strToU8("{}"), "step.onnx": strToU8("") };
    const archive = zipSync({ "cats/1.png": photo("", RED, 1).buffer, kit: both });
    const file = { name: "x.zip", mimeType: "application/zip", buffer: Buffer.from(archive) };
    const files = page.locator(".column").first().locator("input[type=file]");
    await files.setInputFiles(file);
    await page.getByText("kit: written by Pocketune").waitFor();
    const folder = mkdtempSync(join(tmpdir(), "run-"));
    await writeFile(join(folder, "metrics.jsonl"), "");
    await page.locator("input[webkitdirectory]").setInputFiles(folder);
    await page.getByText(`${basename(folder)}: written by Pocketune`).waitFor();
    rmSync(folder, { recursive: true });
    await files.setInputFiles([
      { ...file, buffer: Buffer.from(zipSync(both)) },
      photo("a.png", BLUE),
    ]);
    await page.getByText("2 photos", { exact: true }).waitFor();
    await page.getByRole("alert").getByText("manifest.json").waitFor();
    await page.context().close();
  });

  it("asks before many photos are deleted, and leaves a name that is being composed", async () => {
    const page = await openPage(browser, studio.url);
    await addTo(page, 0, photos(5)[0]!.files);
    page.removeAllListeners("dialog");
    const asked: string[] = [];
    page.on("dialog", (dialog) => {
      asked.push(dialog.message());
      void dialog.dismiss();
    });
    const grid = page.getByRole("listbox").first();
    await grid.press("Delete");
    await page.getByText("4 photos", { exact: true }).waitFor();
    await grid.press("Control+a");
    await grid.press("Backspace");
    await page.getByText("4 selected").waitFor();
    expect(asked).toEqual(["Delete 4 photos?"]);
    const field = page.getByLabel("Name of the class").first();
    await field.focus();
    await field.dispatchEvent("keydown", { key: "Enter", isComposing: true });
    await expect.poll(() => field.evaluate((each) => each === document.activeElement)).toBe(true);
    await page.context().close();
  });

  it("keeps the focus where photos or an import end", async () => {
    const page = await openPage(browser, studio.url);
    await collect(page, photos(3).slice(0, 2));
    const [red, green] = ["red", "green"].map((name) =>
      page.getByRole("region", { name: `Class ${name}` }),
    );
    const focused = (element: Locator) =>
      expect.poll(() => element.evaluate((each) => each === document.activeElement)).toBe(true);
    await red!.getByRole("listbox").press("Control+a");
    await red!.getByRole("listbox").press("Delete");
    await red!.getByText("No photos yet").waitFor();
    await focused(red!.getByRole("button", { name: "Camera" }));
    await green!.getByRole("listbox").press("Control+a");
    await green!.getByRole("button", { name: "Move", exact: true }).press("Enter");
    await green!.getByText("No photos yet").waitFor();
    await focused(green!.getByRole("button", { name: "Camera" }));
    await page.evaluate(() => {
      const decode = window.createImageBitmap.bind(window);
      const begun = new Promise((resolve) => addEventListener("read", resolve, { once: true }));
      window.createImageBitmap = (async (...given: Parameters<typeof decode>) => {
        await begun;
        return decode(...given);
      }) as typeof decode;
    });
    await green!.locator("input[type=file]").setInputFiles([photo("a.png", BLUE)]);
    await page.getByRole("button", { name: "Cancel" }).press("Enter");
    await page.evaluate(() => dispatchEvent(new Event("read")));
    await page.getByRole("progressbar").waitFor({ state: "hidden" });
    await focused(page.getByRole("heading", { name: "Collect photos" }));
    await page.context().close();
  });

  it("says no more what was wrong before", async () => {
    const page = await openPage(browser, studio.url);
    const said = page.getByRole("alert");
    const importer = page.locator("input[type=file]:not([webkitdirectory])").first();
    await importer.setInputFiles(photo("a.png", RED));
    await said.getByText("Drop these photos onto a class").waitFor();
    await addTo(page, 0, [photo("a.png", RED)]);
    await expect.poll(() => said.innerText()).toBe("");
    const field = page.getByLabel("Name of the class").first();
    for (const [name, sentence] of [
      ["Class 2", /^“Class 2” is there already/],
      ["red", /^$/],
      ["", /^A name is needed/],
    ] as const) {
      await field.fill(name);
      await field.press("Enter");
      await expect.poll(() => said.innerText()).toMatch(sentence);
    }
    await page.getByRole("button", { name: "Camera" }).first().click();
    await expect.poll(() => said.innerText()).toBe("");
    await page.context().close();
  });

  it("keeps names apart", async () => {
    const page = await openPage(browser, studio.url);
    const name = page.getByLabel("Name of the class").first();
    await name.fill("Class 2");
    await name.press("Enter");
    await page.getByText("“Class 2” is there already").waitFor();
    await expect.poll(() => name.inputValue()).toBe("Class 1");
    await page.context().close();
  });

  it("makes only the thumbnails in sight", async () => {
    const page = await openPage(browser, studio.url);
    await addTo(page, 0, photos(300)[0]!.files);
    const grid = page.getByRole("listbox").first();
    const shown = () => grid.getByRole("option").count();
    await expect.poll(shown).toBeGreaterThan(10);
    await expect.poll(shown).toBeLessThan(100);
    await grid.press("Home");
    await grid.locator("[aria-posinset='1']").waitFor();
    await grid.press("End");
    await grid.locator("[aria-posinset='300']").waitFor();
    await expect.poll(shown).toBeLessThan(100);
    await page.context().close();
  });

  it("records distinct frames while a key is held", async () => {
    const page = await openPage(browser, studio.url);
    await page.getByRole("button", { name: "Camera" }).first().click();
    await page.locator("button.record:focus").waitFor();
    await page.keyboard.down("Space");
    await page.getByText(/Recording: ([3-9]|\d\d+) photos/).waitFor();
    await page.keyboard.up("Space");
    await page.getByRole("button", { name: "Hold to record" }).waitFor();
    const kept = page.getByRole("listbox").first().getByRole("option");
    await expect.poll(() => kept.count()).toBeGreaterThan(2);
    await page.keyboard.down("Space"); // and again, before the first recording has ended
    await page.keyboard.up("Space");
    await page.keyboard.down("Space");
    await page.getByText(/Recording: ([2-9]|\d\d+) photos/).waitFor();
    await page.keyboard.up("Space");
    await page.getByRole("button", { name: "Hold to record" }).waitFor();
    const names = await kept.evaluateAll((all) => all.map(({ ariaLabel }) => ariaLabel));
    expect(new Set(names).size).toBe(names.length);
    await page.context().close();
  });

  it("opens and closes the camera of a class any number of times", async () => {
    const page = await openPage(browser, studio.url);
    await page.evaluate(() => {
      const devices = navigator.mediaDevices;
      const open = devices.getUserMedia.bind(devices);
      const tracks: MediaStreamTrack[] = Object.assign(window, { tracks: [] }).tracks;
      devices.getUserMedia = async (wanted) => {
        const stream = await open(wanted);
        tracks.push(...stream.getTracks());
        return stream;
      };
    });
    const states = () =>
      page.evaluate(() =>
        (window as unknown as { tracks: MediaStreamTrack[] }).tracks.map((each) => each.readyState),
      );
    const camera = page.getByRole("button", { name: "Camera", exact: true }).first();
    const toggle = async (isOpen: boolean, ...expected: string[]) => {
      await camera.click();
      await expect.poll(states).toEqual(expected);
      await expect.poll(() => camera.getAttribute("aria-expanded")).toBe(String(isOpen));
      await expect.poll(() => page.locator("video:visible").count()).toBe(Number(isOpen));
    };
    await toggle(true, "live");
    await toggle(false, "ended");
    await toggle(true, "ended", "live");
    await toggle(false, "ended", "ended");
    await toggle(true, "ended", "ended", "live");
    await page.getByRole("button", { name: "Delete class" }).first().click();
    await expect.poll(states).toEqual(["ended", "ended", "ended"]);
    await page.context().close();
  });
});

describe.skipIf(missing)("an import that goes on", () => {
  it("is waited for before photos have other labels", async () => {
    const page = await openPage(browser, studio.url);
    await page.evaluate(() => {
      window.createImageBitmap = () => new Promise(() => undefined); // photos never are read
    });
    const column = page.locator(".column").first();
    await column.locator("input[type=file]").setInputFiles([photo("a.png", RED)]);
    await page.getByRole("progressbar").first().waitFor();
    const task = page.getByLabel("A photo has");
    await task.selectOption("attributes");
    await page.getByText("Photos are still being imported; wait for them").waitFor();
    await expect.poll(() => task.inputValue()).toBe("classification");
    await page.context().close();
  });

  it("is asked about before a run begins or the page is left", async () => {
    const page = await openPage(browser, studio.url);
    await collect(page, photos(2));
    await page.evaluate(() => {
      window.createImageBitmap = () => new Promise(() => undefined); // photos never are read
    });
    const column = page.locator(".column").first();
    await column.locator("input[type=file]").setInputFiles([photo("a.png", RED, 7)]);
    await page.getByRole("progressbar").first().waitFor();
    page.removeAllListeners("dialog");
    const asked: string[] = [];
    page.on("dialog", (dialog) => {
      asked.push(dialog.type() === "beforeunload" ? dialog.type() : dialog.message());
      void dialog.dismiss();
    });
    await goTo(page, "Train");
    await page.getByRole("button", { name: "Train", exact: true }).click();
    await page.close({ runBeforeUnload: true });
    await expect
      .poll(() => asked)
      .toEqual([expect.stringMatching(/^Photos are still being imported/), "beforeunload"]);
    await page.context().close();
  });
});

function importFile(page: Page, name: string, buffer: Buffer): Promise<void> {
  return given.choose(page, "Import a CSV or .zip", { name, mimeType: "application/zip", buffer });
}

describe.skipIf(missing)("the browser", () => {
  it("has one tab with the studio, and a second one leaves a run alone", async () => {
    const page = await openPage(browser, studio.url);
    await collect(page, photos(3));
    await train(page, "last", given.ENDLESS);
    await page.getByRole("heading", { name: /^Epoch \d+ of/ }).waitFor();
    const other = await page.context().newPage();
    for (let visit = 0; visit < 2; visit++) {
      await other.goto(page.url());
      await other.getByText("The studio is open in another tab").waitFor();
      await expect.poll(() => other.getByRole("heading", { level: 2 }).count()).toBe(0);
      await expect.poll(() => other.getByRole("button").count()).toBe(0);
    }
    await page.bringToFront();
    await page.getByRole("button", { name: "Stop and keep the best" }).click();
    await given.trained(page);
    expect(page.errors).toEqual([]);
    await page.close();
    const part = other.getByRole("heading", { level: 2 });
    await expect
      .poll(async () => {
        await other.reload(); // until the tab that is closed has given back its lock
        await part.or(other.getByText("The studio is open in another tab")).first().waitFor();
        return part.count();
      })
      .toBeGreaterThan(0);
    await goTo(other, "Collect");
    await other.getByText("9 photos in 3 classes.").waitFor();
    await expect.poll(() => other.getByText("A run was interrupted").count()).toBe(0);
    await goTo(other, "Take along");
    await other.getByRole("button", { name: "Download run.zip" }).waitFor();
    await other.context().close();
  });

  it("has its camera back when the part that used it is left", async () => {
    const page = await openPage(browser, studio.url);
    await collect(page, photos(2));
    await train(page, "last", 0);
    await page.getByRole("button", { name: "Try it" }).click();
    const section = page.getByRole("region", { name: "Use" });
    await section.getByRole("button", { name: "Start the camera" }).click();
    await section.getByText(/%$/).first().waitFor();
    const isOn = () =>
      page.evaluate(() => [...document.querySelectorAll("video")].some((each) => each.srcObject));
    await expect.poll(isOn).toBe(true);
    const other = section.getByRole("button", { name: "Other camera" });
    await other.click();
    await expect.poll(isOn).toBe(true);
    await goTo(page, "Take along");
    await expect.poll(isOn).toBe(false);
    await expect.poll(() => page.getByRole("alert").innerText()).toBe("");
    await goTo(page, "Use");
    await section.getByRole("button", { name: "Start the camera" }).waitFor();
    expect(await other.count()).toBe(0);
    expect(page.errors).toEqual([]);
    await page.context().close();
  });

  it("says no more why it had no camera once it has one", async () => {
    const page = await openPage(browser, studio.url);
    await openKit(page);
    await goTo(page, "Use");
    await page.evaluate(() => {
      const { mediaDevices } = navigator;
      const { getUserMedia } = mediaDevices;
      mediaDevices.getUserMedia = () => {
        mediaDevices.getUserMedia = getUserMedia; // the user allows it
        return Promise.reject(new DOMException("", "NotAllowedError"));
      };
    });
    const start = page.getByRole("button", { name: "Start the camera" });
    await start.click();
    await page.getByText("The page may not use the camera").waitFor();
    await start.click();
    await page.getByRole("button", { name: "Stop the camera" }).waitFor();
    expect(await page.getByRole("alert").innerText()).toBe("");
    await page.context().close();
  });

  it("is asked to keep the screen on while a run goes on", async () => {
    const context = await browser.newContext();
    await context.addInitScript(() => {
      const locks: { released: boolean }[] = [];
      const request = async () => {
        const lock = { released: false, release: async () => void (lock.released = true) };
        locks.push(lock);
        return lock;
      };
      Object.assign(window, { held: () => locks.filter(({ released }) => !released).length });
      Object.defineProperty(Navigator.prototype, "wakeLock", { value: { request } });
    });
    const page = await openPage(context, studio.url);
    const held = () => page.evaluate(() => (window as unknown as { held(): number }).held());
    await collect(page, photos(3));
    await expect.poll(held).toBe(0);
    await train(page, "last", given.ENDLESS);
    await page.getByRole("heading", { name: /^Epoch \d+ of/ }).waitFor();
    await expect.poll(held).toBe(1);
    await page.getByRole("button", { name: "Pause" }).click();
    await page.getByRole("heading", { name: "Paused" }).waitFor();
    await expect.poll(held).toBe(0);
    await page.getByRole("button", { name: "Go on" }).click();
    await expect.poll(held).toBe(1);
    await page.getByRole("button", { name: "Stop and keep the best" }).click();
    await page.getByRole("heading", { name: "Your network is ready" }).waitFor();
    await expect.poll(held).toBe(0);
    await context.close();
  });

  it("forgets everything without the imports that wait", async () => {
    const page = await openPage(browser, studio.url);
    const [red, green] = photos(50);
    const files = page.locator(".column input[type=file]");
    await page.evaluate(() => {
      const decode = window.createImageBitmap;
      const isForgotten = new Promise((resolve) => addEventListener("forgotten", resolve));
      const count = document.querySelector(".column .count")!;
      window.createImageBitmap = async (photo: ImageBitmapSource) => {
        if (/^\d/.test(count.textContent)) await isForgotten; // once some are there
        return decode(photo);
      };
    });
    await files.nth(0).setInputFiles(red!.files);
    await files.nth(1).setInputFiles(green!.files);
    await page.evaluate(() => {
      const count = document.querySelectorAll(".column .count")[1]!;
      new MutationObserver(() => (document.body.dataset["second"] = count.textContent)).observe(
        count,
        { childList: true },
      );
    });
    await page
      .locator(".column")
      .first()
      .getByText(/^\d+ photos$/)
      .waitFor();
    await goTo(page, "Take along");
    await page.getByRole("button", { name: "Forget everything" }).click();
    await page.evaluate(() => void dispatchEvent(new Event("forgotten")));
    await page.getByText("Everything is deleted.").waitFor();
    await expect.poll(() => page.locator("body").getAttribute("data-second")).toBeNull();
    await page.context().close();
  });

  it("forgets everything, also what a run has learned that goes on", async () => {
    const page = await openPage(browser, studio.url);
    await collect(page, photos(3));
    await train(page, "last", given.ENDLESS);
    await page.getByRole("heading", { name: /^Epoch \d+ of/ }).waitFor();
    await goTo(page, "Take along");
    await page.getByRole("button", { name: "Forget everything" }).click();
    await page.getByText("Everything is deleted.").waitFor();
    await goTo(page, "Train");
    await page.getByText("Training needs photos of two classes").waitFor();
    await expect.poll(() => page.getByRole("heading", { level: 3 }).count()).toBe(0);
    await goTo(page, "Collect");
    await expect.poll(() => page.getByText("No photos yet").count()).toBe(2);
    await page.reload();
    await page.getByText("No photos yet").first().waitFor();
    await expect.poll(() => page.locator(".thumbnail").count()).toBe(0);
    await goTo(page, "Use");
    await page.getByText("There is nothing to use yet").waitFor();
    await page.context().close();
  });
});

describe.skipIf(missing)("using a network", () => {
  it("shows all that a camera sees and what it is told as, on a phone", async () => {
    const viewport = { width: 360, height: 640 };
    const page = await openPage(browser, studio.url, { viewport });
    expect((await page.getByRole("banner").boundingBox())!.height).toBeLessThan(90); // two rows
    await openKit(page);
    await goTo(page, "Use");
    await page.getByRole("button", { name: "Start the camera" }).click();
    const last = page.locator(".live .value").last();
    await last.waitFor();
    const end = async () => {
      const { y, height } = (await last.boundingBox())!;
      return y + height;
    };
    await expect.poll(end).toBeLessThan(viewport.height);
    const { height } = (await page.getByRole("banner").boundingBox())!;
    const top = (await page.locator(".look").boundingBox())!.y;
    expect(top).toBeGreaterThan(height);
    await page.context().close();
  });

  it("opens what is dropped, and says how many photos are left out", async () => {
    const page = await openPage(browser, studio.url);
    await goTo(page, "Use");
    const bytes = (await readFile(KIT)).toString("base64");
    const dataTransfer = await page.evaluateHandle((data) => {
      const transfer = new DataTransfer();
      transfer.items.add(
        new File([Uint8Array.from(atob(data), (c) => c.charCodeAt(0))], "whole.zip"),
      );
      return transfer;
    }, bytes);
    await page.locator("body").dispatchEvent("drop", { dataTransfer });
    await page.getByText("The kit whole was checked and added.").waitFor();
    await openKit(page);
    await goTo(page, "Use");
    const many = Array.from({ length: 62 }, (_, i) => photo(`${i}.png`, RED, i));
    await page.locator("section:visible input[type=file]").setInputFiles(many);
    await page.getByText("Only the first 60 photos are looked at; 2 are left out.").waitFor();
    await page.context().close();
  });

  it("looks at the other photos where one cannot be read, and says which", async () => {
    const page = await openPage(browser, studio.url);
    await openKit(page);
    await goTo(page, "Use");
    await page.evaluate(() => {
      const { slice } = Blob.prototype;
      Blob.prototype.slice = function (this: Blob, ...range) {
        const isGone = (this as File).name?.startsWith("gone");
        if (isGone) throw new DOMException("the file has gone", "NotReadableError");
        return slice.apply(this, range);
      };
    });
    const files = ["a.png", "gone.png", "b.png", "gone too.png"].map((name, i) =>
      photo(name, RED, i),
    );
    await page.locator("section:visible input[type=file]").setInputFiles(files);
    const results = page.getByRole("list", { name: "Predictions" });
    for (const name of ["a.png", "b.png"]) await results.getByText(name).waitFor();
    const why = "it could not be read (the file has gone); try it again";
    await expect
      .poll(() => page.getByRole("alert").locator("p").allInnerTexts())
      .toEqual([`gone.png: ${why}\ngone too.png: ${why}`]);
    await page.locator("section:visible input[type=file]").setInputFiles(photo("c.png", RED));
    await results.getByText("c.png").waitFor();
    await expect.poll(() => page.getByRole("alert").innerText()).toBe("");
    expect(page.errors).toEqual([]);
    await page.context().close();
  });

  it("ends with the part, whatever photos are left to look at", async () => {
    const page = await openPage(browser, studio.url);
    await openKit(page);
    const before = page.workers().length;
    await page.evaluate(() => {
      const decode = window.createImageBitmap;
      const isReleased = new Promise<void>((resolve) => {
        Object.assign(window, { release: resolve });
      });
      window.createImageBitmap = async (photo: ImageBitmapSource) => {
        document.body.dataset["decoded"] = "true";
        await isReleased;
        return decode(photo);
      };
    });
    await goTo(page, "Use");
    const two = [photo("a.png", RED), photo("b.png", BLUE)];
    await page.locator("section:visible input[type=file]").setInputFiles(two);
    await page.locator("body[data-decoded]").waitFor();
    await goTo(page, "Collect");
    await page.evaluate(async () => {
      (window as unknown as { release(): void }).release();
      await new Promise((resolve) => setTimeout(resolve, 500)); // in which a worker would be open
    });
    await expect.poll(() => page.workers().length).toBe(before); // one may take a while to end
    await expect.poll(() => page.getByText("a.png").count()).toBe(0);
    expect(page.errors).toEqual([]);
    await page.context().close();
  });
});

describe.skipIf(missing)("the result of a run", () => {
  it("is not shown any more once another network is open", async () => {
    const page = await openPage(browser, studio.url);
    await collect(page, photos(2));
    await train(page, "last", 0);
    await page.getByRole("heading", { name: "Your network is ready" }).waitFor();
    await openKit(page);
    await goTo(page, "Train");
    await expect.poll(() => page.getByRole("heading", { level: 3 }).count()).toBe(0);
    await page.context().close();
  });

  it("says how many classes its accuracy leaves out", async () => {
    const page = await openPage(browser, studio.url);
    const [red, ...others] = photos(10);
    await collect(page, [
      red!,
      ...others.map(({ name, files }) => ({ name, files: files.slice(7) })),
    ]);
    await train(page, "last", 0);
    await given.trained(page);
    const said = await page.getByText(/^It recognizes/).innerText();
    expect(said).toMatch(/of 2 held-out photos, .* None are of 2 classes: nothing tells/);
    await page.context().close();
  });

  it("is replaced by a file only if it was downloaded, or that is confirmed", async () => {
    const page = await openPage(browser, studio.url);
    await collect(page, photos(2));
    await train(page, "last", 0);
    await given.trained(page);
    page.removeAllListeners("dialog");
    const asked: string[] = [];
    page.on("dialog", (dialog) => {
      asked.push(dialog.message());
      void dialog.dismiss();
    });
    await goTo(page, "Take along");
    await given.choose(page, "Open a file", KIT);
    await expect
      .poll(() => asked)
      .toEqual([expect.stringMatching(/^The file takes the place of your last run/)]);
    const folder = mkdtempSync(join(tmpdir(), "taken-"));
    await given.save(page, folder, "run.zip");
    rmSync(folder, { recursive: true });
    await given.choose(page, "Open a file", KIT);
    await page.getByText("whole.zip is open").waitFor();
    expect(asked.length).toBe(1);
    await expect.poll(() => page.getByRole("button", { name: "Download run.zip" }).count()).toBe(0);
    await page.context().close();
  });

  it("is asked about also where it has not been read yet", async () => {
    const page = await openPage(browser, studio.url);
    await collect(page, photos(2));
    await train(page, "last", 0);
    await given.trained(page);
    page.removeAllListeners("dialog");
    const asked = page.waitForEvent("dialog");
    const read = await slowly(page);
    await goTo(page, "Take along");
    await given.choose(page, "Open a file", KIT);
    await read();
    await (await asked).dismiss();
    await page.getByRole("button", { name: "Download run.zip" }).waitFor();
    await page.context().close();
  });
});

/** Load the page again, which reads its kits and its network once it is told. */
async function slowly(page: Page): Promise<() => Promise<void>> {
  await page.addInitScript(() => {
    const fetched = fetch;
    const told = new Promise((resolve) => Object.assign(window, { tell: resolve }));
    window.fetch = async (...request) => {
      if (request[0] === "site.json") await told;
      return fetched(...request);
    };
  });
  await page.reload();
  await page.getByRole("heading", { level: 2 }).first().waitFor();
  return () => page.evaluate(() => (window as unknown as { tell(): void }).tell());
}

describe.skipIf(missing)("a run that goes on", () => {
  it("can be used as soon as its classifier is computed", async () => {
    const page = await openPage(browser, studio.url);
    await collect(page, photos(10));
    await train(page, "blocks", given.ENDLESS);
    const usable = /^The network can be used now, and recognizes [\d.]+% of the held-out photos/;
    const said = page.getByRole("paragraph").filter({ hasText: usable });
    await said.waitFor();
    await expect.poll(() => violations(page)).toEqual([]);
    await page.getByRole("button", { name: "Use it now" }).click();
    await page.getByText("In use: your last run, with 3 classes.").waitFor();
    await page.locator("section:visible input[type=file]").setInputFiles(photo("a.png", RED));
    await page.getByText("a.png", { exact: true }).waitFor();
    await goTo(page, "Take along");
    await page.getByRole("button", { name: "Download run.zip" }).waitFor();
    expect(page.errors).toEqual([]);
    await page.context().close();
  });
});

describe.skipIf(missing)("settings", () => {
  it.each([
    ["Epochs", "1.5"],
    ["Epochs", "-1"],
    ["Learning rate", "0"],
    ["Learning rate of the classifier", "-0.1"],
  ])("with %s of %s do not train", async (name, value) => {
    const page = await openPage(browser, studio.url);
    await collect(page, photos(2));
    await goTo(page, "Train");
    const field = page.getByLabel(name, { exact: true });
    await page.getByText("Settings", { exact: true }).click();
    await field.fill(value);
    await page.getByText("Settings", { exact: true }).click(); // out of sight
    await page.getByRole("button", { name: "Train", exact: true }).click();
    await page.locator(":invalid:focus").waitFor();
    await expect.poll(() => field.evaluate((each) => each === document.activeElement)).toBe(true);
    await page.getByRole("button", { name: "Train", exact: true }).waitFor();
    await page.context().close();
  });

  it("of any number of epochs are used", async () => {
    const page = await openPage(browser, studio.url);
    await collect(page, photos(2));
    await train(page, "last", 2000);
    await page.getByRole("heading", { name: /^Epoch \d+ of 2,?000/ }).waitFor();
    const said = page.getByRole("paragraph").filter({ hasText: "it has a classifier for your" });
    await said.waitFor();
    await page.context().close();
  });
});

describe.skipIf(missing)("a kit", () => {
  it("stays chosen where photos are collected before the kits are read", async () => {
    const page = await openPage(browser, studio.url);
    await goTo(page, "Train");
    const chosen = page.getByRole("radio", { name: /^blocks/ });
    await chosen.check();
    const read = await slowly(page);
    await goTo(page, "Collect");
    await page.getByRole("button", { name: "Add a class" }).click();
    await expect.poll(() => page.getByLabel("Name of the class").count()).toBe(3);
    await read();
    await goTo(page, "Train");
    await chosen.waitFor();
    expect(await chosen.isChecked()).toBe(true);
    await page.context().close();
  });

  it("that is removed gives the focus to the one that is chosen", async () => {
    const page = await openPage(browser, studio.url);
    await goTo(page, "Train");
    await given.choose(page, "Add a kit (.zip)", KIT);
    await page.getByText("The kit whole was checked and added.").waitFor();
    await page.getByRole("button", { name: "Remove the kit whole" }).click();
    await page.locator(".kit :checked:focus").waitFor();
    await expect.poll(() => page.getByRole("radio").count()).toBe(2);
    await page.context().close();
  });
});

describe.skipIf(missing)("an export", () => {
  let folder: string;
  let host: Server;

  beforeAll(async () => {
    if (missing) return;
    folder = mkdtempSync(join(tmpdir(), "studio-"));
    const made = given.pocketune("studio", "--export", join(folder, "site"));
    await new Promise((resolve) => made.on("exit", resolve));
  });
  beforeEach(async () => {
    host = await plainHost(join(folder, "site"));
  });
  afterEach(() => {
    host.closeAllConnections();
    host.close();
  });
  afterAll(() => {
    if (folder) rmSync(folder, { recursive: true, force: true });
  });

  it("is of one version in a page that stays open while the site changes", async () => {
    const { port } = host.address() as AddressInfo;
    const url = `http://127.0.0.1:${port}/below/`;
    const page = await openPage(browser, url);
    await collect(page, photos(3));
    await page.waitForFunction(keptWhole);
    const listing = join(folder, "site/site.json");
    const before = await readFile(listing, "utf8");
    const name = /worker-wasm-\w+\.js/.exec(before)![0];
    const move = (from: string, to: string, text: string) =>
      Promise.all([
        rename(join(folder, "site", from), join(folder, "site", to)),
        writeFile(listing, text),
      ]);
    const { version } = JSON.parse(before) as { version: string };
    const after = before.replace(version, "next").replace(name, "worker-next.js");
    await move(name, "worker-next.js", after);
    try {
      const other = await page.context().newPage();
      await other.goto(url);
      await other.getByText("The studio is open in another tab").waitFor();
      await expect
        .poll(() => other.evaluate(() => caches.keys()))
        .toEqual(["pocketune-/below/next"]);
      await train(page, "last", 1);
      await page.getByRole("alert").getByText("load the page again").waitFor();
    } finally {
      await move("worker-next.js", name, before);
    }
    await page.context().close();
  });

  it("takes photos and trains on plain http, and says what it lacks there", async () => {
    const { port } = host.address() as AddressInfo;
    const plain = await given.openBrowser(false, "--host-resolver-rules=MAP plain.test 127.0.0.1");
    const page = await openPage(plain, `http://plain.test:${port}/below/`);
    expect(await page.evaluate(() => isSecureContext)).toBe(false);
    const said = await page.getByRole("alert").innerText();
    expect(said).toMatch(/^Without https, .*; open it by https, or run pocketune studio/);
    const second = await page.context().newPage();
    await second.goto(page.url());
    await second.getByText("The studio is open in another tab").waitFor();
    await second.close();
    await collect(page, photos(3));
    await train(page, "last", 1);
    await page.getByText(/^One thread computes, as this page came without https/).waitFor();
    await given.trained(page);
    expect(page.errors).toEqual([]);
    await plain.close();
  });

  it("gets threads on a host that sets no headers, and works without it", async () => {
    const { port } = host.address() as AddressInfo;
    const page = await openPage(browser, `http://127.0.0.1:${port}/below/`);
    await page.waitForFunction(() => crossOriginIsolated);
    await page.getByRole("heading", { level: 2 }).first().waitFor();
    await collect(page, photos(3));
    await page.waitForFunction(keptWhole);
    host.closeAllConnections();
    await new Promise((resolve) => host.close(resolve));
    await page.reload();
    await page.getByText("9 photos in 3 classes.").waitFor();
    await goTo(page, "Train");
    await page.getByText("EfficientNet-Lite0").first().waitFor();
    expect(page.errors).toEqual([]);
    await page.context().close();
  });
});

/** Runs in the page: whether the service worker has kept the site. */
async function keptWhole(): Promise<boolean> {
  const names = (await caches.keys()).filter((name) => !name.endsWith(".partial"));
  if (names.length !== 1) return false;
  return Boolean(await (await caches.open(names[0]!)).match("site.json"));
}

/** A host with types and nothing else, which has the site below a folder. */
function plainHost(site: string): Promise<Server> {
  const types: Record<string, string> = {
    html: "text/html",
    js: "text/javascript",
    mjs: "text/javascript",
    css: "text/css",
    svg: "image/svg+xml",
    json: "application/json",
  };
  const server = createServer((request, response) => {
    const path = request.url!.replace(/^\/below\//, "").split("?")[0]! || "index.html";
    readFile(join(site, path)).then(
      (data) => {
        const type = types[path.split(".").at(-1)!] ?? "application/octet-stream";
        response.writeHead(200, { "Content-Type": type }).end(data);
      },
      () => response.writeHead(404).end(),
    );
  });
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(server)));
}
