/** What the tests of the whole page share: the server, a browser, and photos that are made. */
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { crc32, deflateSync } from "node:zlib";
import {
  type Browser,
  type BrowserContext,
  type BrowserContextOptions,
  chromium,
  type Page,
} from "playwright-core";

/** Scripts of npm run in web/. */
const ROOT = resolve("..");
const CHROMIUM = process.env["CHROMIUM"] ?? "/usr/bin/chromium";
export const PYTHON = process.env["PYTHON"] ?? join(ROOT, ".venv/bin/python");

/** Why the tests cannot run here; empty if they can. */
export const missing = [
  existsSync(CHROMIUM) ? "" : `no Chromium at ${CHROMIUM}`,
  existsSync(PYTHON) ? "" : `no Python at ${PYTHON}`,
]
  .filter(Boolean)
  .join(", ");

export interface Studio {
  /** With the token. */
  url: string;
  stop(): void;
}

/** `pocketune studio` on a free port. */
export async function startStudio(...options: string[]): Promise<Studio> {
  const server = pocketune("studio", "--port", "0", "--no-open", ...options);
  for await (const line of createInterface(server.stdout!)) {
    const found = /^the studio is at (.*)$/.exec(line);
    if (found) return { url: found[1]!, stop: () => void server.kill("SIGINT") };
  }
  throw new Error("pocketune studio has ended");
}

/** A command, in the folder of the project. */
export function pocketune(...options: string[]): ChildProcess {
  return spawn(PYTHON, ["-m", "pocketune", ...options], {
    stdio: ["ignore", "pipe", "inherit"],
    cwd: ROOT,
  });
}

/** What a command prints, in a folder; throws if it fails. */
export function output(folder: string, ...options: string[]): string {
  const done = spawnSync(PYTHON, ["-m", "pocketune", ...options], {
    cwd: folder,
    encoding: "utf8",
    env: { ...process.env, OMP_NUM_THREADS: "1" },
  });
  if (done.status !== 0) throw new Error(`${options.join(" ")}: ${done.stderr}`);
  return done.stdout;
}

/** Put a file that the page offers into a folder. */
export async function save(page: Page, folder: string, name: string): Promise<void> {
  const waiting = page.waitForEvent("download");
  await page.getByRole("button", { name: `Download ${name}` }).click();
  await (await waiting).saveAs(join(folder, name));
}

/** Choose a file by a button. */
export async function choose(page: Page, button: string, file: string | MadeFile): Promise<void> {
  const waiting = page.waitForEvent("filechooser");
  await page.getByRole("button", { name: button }).click();
  await (await waiting).setFiles(file);
}

const MADE_CAMERA = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"];

/** A browser with a made camera, whose use it does not ask about; or with none. */
export function openBrowser(camera = true, ...options: string[]): Promise<Browser> {
  // A sandbox is not to be had as root.
  const args = ["--no-sandbox", ...(camera ? MADE_CAMERA : []), ...options];
  return chromium.launch({ executablePath: CHROMIUM, args });
}

/** A browser that keeps what it has stored in a folder. */
export function openProfile(folder: string, ...options: string[]): Promise<BrowserContext> {
  return chromium.launchPersistentContext(folder, {
    executablePath: CHROMIUM,
    args: ["--no-sandbox", ...options],
  });
}

/** End a browser and all of its tabs without a word, as a dead battery does. */
export async function kill(context: BrowserContext): Promise<void> {
  const session = await context.browser()!.newBrowserCDPSession();
  const { processInfo } = await session.send("SystemInfo.getProcessInfo");
  const closed = new Promise((resolve) => context.once("close", resolve));
  for (const { type, id } of processInfo) if (type === "browser") process.kill(id, "SIGKILL");
  await closed;
}

/** A page in a profile of its own, or in the given one, with the errors of its code. */
export async function openPage(
  browser: Browser | BrowserContext,
  url: string,
  options: BrowserContextOptions = {},
): Promise<Page & { errors: string[] }> {
  const context = "newContext" in browser ? await browser.newContext(options) : browser;
  const page = await context.newPage();
  page.setDefaultTimeout(120_000); // a busy machine takes long to begin a run
  const errors: string[] = [];
  page.on("pageerror", (error) => errors.push(error.message));
  page.on("dialog", (dialog) => void dialog.accept());
  await page.goto(url);
  await page.getByRole("heading", { level: 2 }).first().waitFor();
  return Object.assign(page, { errors });
}

/** Let `workerSays` reach the workers of a context's pages. */
export async function keepWorkers(context: BrowserContext): Promise<void> {
  await context.addInitScript(() => {
    const workers: Worker[] = [];
    const Original = Worker;
    window.Worker = class extends Original {
      constructor(address: string | URL, options?: WorkerOptions) {
        super(address, options);
        workers.push(this);
      }
    };
    Object.assign(window, {
      say: (data: object) => workers.at(-1)!.dispatchEvent(new MessageEvent("message", { data })),
    });
  });
}

/** The page hears this from the worker that it has started last. */
export function workerSays(page: Page, message: object): Promise<void> {
  return page.evaluate((data) => {
    (window as unknown as { say(data: object): void }).say(data);
  }, message);
}

export interface MadeFile {
  name: string;
  mimeType: string;
  buffer: Buffer;
}

type Color = readonly [number, number, number];

/** A photo of one color with a bright square, at a place that follows from its number; no copy of another. */
export function photo(name: string, color: Color, number = 0): MadeFile {
  const side = 64;
  const rows = Buffer.alloc(side * (1 + side * 3));
  const [left, top] = [(number * 7) % 40, (number * 13) % 40];
  for (let y = 0; y < side; y++) {
    for (let x = 0; x < side; x++) {
      const inside = x >= left && x < left + 20 && y >= top && y < top + 20;
      const at = y * (1 + side * 3) + 1 + x * 3;
      color.forEach((value, i) => (rows[at + i] = inside ? 255 - value : (value + x + y) % 256));
    }
  }
  const header = Buffer.alloc(13);
  header.writeUInt32BE(side, 0);
  header.writeUInt32BE(side, 4);
  header.set([8, 2], 8);
  const magic = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
  const comment = chunk("tEXt", Buffer.from(`Comment\0${name} ${number}`));
  const parts = [chunk("IHDR", header), chunk("IDAT", deflateSync(rows)), comment, chunk("IEND")];
  return { name, mimeType: "image/png", buffer: Buffer.concat([magic, ...parts]) };
}

function chunk(kind: string, data = Buffer.alloc(0)): Buffer {
  const body = Buffer.concat([Buffer.from(kind), data]);
  const made = Buffer.alloc(body.length + 8);
  made.writeUInt32BE(data.length, 0);
  body.copy(made, 4);
  made.writeUInt32BE(crc32(body), body.length + 4);
  return made;
}

export const RED: Color = [180, 20, 20];
export const GREEN: Color = [20, 150, 20];
export const BLUE: Color = [20, 20, 180];

export interface Class {
  name: string;
  files: MadeFile[];
}

/** So many photos of each of three colors. */
export function photos(count: number): Class[] {
  return Object.entries({ red: RED, green: GREEN, blue: BLUE }).map(([name, color]) => ({
    name,
    files: Array.from({ length: count }, (_, i) => photo(`${name}-${i}.png`, color, i)),
  }));
}

/** Add photos to the class at a place, by its button for files. */
export async function addTo(page: Page, index: number, files: MadeFile[]): Promise<void> {
  const column = page.locator(".column").nth(index);
  const count = column.locator(".count");
  const before = Number.parseInt((await count.innerText()).replace("No", "0"));
  await column.locator("input[type=file]").setInputFiles(files);
  const now = before + files.length;
  await column.getByText(`${now} photo${now === 1 ? "" : "s"}`, { exact: true }).waitFor();
}

/** Name classes and fill them; the page begins with two. */
export async function collect(page: Page, classes: Class[]) {
  for (const [index, { name, files }] of classes.entries()) {
    if (index > 1) await page.getByRole("button", { name: "Add a class" }).click();
    const field = page.locator(".column").nth(index).getByLabel("Name of the class");
    await field.fill(name);
    await field.press("Enter");
    await addTo(page, index, files);
  }
}

/** Go to a part of the page by its name. */
export async function goTo(page: Page, part: "Collect" | "Train" | "Use" | "Take along") {
  await page.getByRole("link", { name: part, exact: true }).click();
  const id = part.split(" ")[0]!.toLowerCase();
  await page.locator(`#${id}-title`).waitFor(); // the part before is shown until then
}

/** Epochs of a run that is still going on when it is stopped, on any machine. */
export const ENDLESS = 50_000;

/** Choose a kit and a number of epochs, and press Train. */
export async function train(page: Page, kit: string, epochs: number): Promise<void> {
  await goTo(page, "Train");
  const part = page.getByRole("region", { name: "Train" });
  await part.getByRole("radio", { name: new RegExp(`^${kit}`) }).check();
  const field = part.getByLabel("Epochs");
  if (!(await field.isVisible())) await part.getByText("Settings", { exact: true }).click();
  await field.fill(String(epochs));
  await part.getByRole("button", { name: "Train", exact: true }).click();
}

/** Args: milliseconds to wait at most; 0 for no limit. */
export async function trained(page: Page, timeout = 150_000): Promise<void> {
  const ready = page.getByRole("heading", { name: "Your network is ready" });
  const failed = page.getByRole("heading", { name: "The run has stopped" });
  await ready.or(failed).waitFor({ timeout });
  if (await failed.isVisible()) throw new Error(await page.getByRole("alert").innerText());
  // The result takes the place of the checkpoint in the database a little later.
  while (await stored(page, "checkpoint")) await page.waitForTimeout(50);
}

/** How many values a store of the page's database has. */
export function stored(page: Page, store: string): Promise<number> {
  return page.evaluate(async (store) => {
    const settled = <T>(request: IDBRequest<T>) =>
      new Promise<T>((resolve, reject) => {
        request.onsuccess = () => resolve(request.result);
        request.onerror = () => reject(request.error!);
      });
    const [{ name }] = (await indexedDB.databases()) as [{ name: string }]; // by the site's folder
    const database = await settled(indexedDB.open(name));
    const count = await settled(database.transaction(store).objectStore(store).count());
    database.close();
    return count;
  }, store);
}
