/**
 * Measures kits in Chromium for benchmarks/bench_studio.py, which asks by lines of JSON:
 * {"open": "kit.zip", "threads": 1} gives the number of a page, {"step": number} its milliseconds of
 * the frozen part and of all else and the bytes of its heap, {"close": number} ends it, and
 * {"first": "kit.zip", "threads": 2} gives the milliseconds from an empty page to a prediction.
 */
import { cp, rm } from "node:fs/promises";
import { basename, join } from "node:path";
import { createInterface } from "node:readline";
import { type BrowserContext, chromium, type Page } from "playwright-core";
import type { Bench } from "./bench.harness";
import { CHROMIUM, harnessFolder } from "./harness";
import { serve } from "./serve";

declare const window: { bench: Bench };

type Question =
  | { open: string; threads: number }
  | { first: string; threads: number }
  | { step: number }
  | { close: number };

const folder = await harnessFolder("bench.harness.ts", "bench.worker.ts");
const served = await serve(folder, true);
const browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
const pages: { context: BrowserContext; page: Page }[] = [];

async function newPage(): Promise<number> {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(`${served.url}/index.html`);
  await page.waitForFunction(() => "bench" in window);
  return pages.push({ context, page }) - 1;
}

async function give(kit: string): Promise<string> {
  await cp(kit, join(folder, basename(kit)));
  return basename(kit);
}

async function answer(question: Question): Promise<unknown> {
  if ("step" in question) return pages[question.step]!.page.evaluate(() => window.bench.step());
  if ("close" in question) return pages[question.close]!.context.close();
  const isFirst = "first" in question;
  const kit = await give(isFirst ? question.first : question.open);
  const number = await newPage();
  const { page, context } = pages[number]!;
  const given: [string, number] = [kit, question.threads];
  if (!isFirst) {
    await page.evaluate(([kit, threads]) => window.bench.open(kit, threads), given);
    return number;
  }
  const taken = await page.evaluate(([kit, threads]) => window.bench.first(kit, threads), given);
  await context.close();
  return taken;
}

console.log(JSON.stringify(browser.version()));
for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify((await answer(JSON.parse(line) as Question)) ?? null));
}
await browser.close();
served.close();
await rm(folder, { recursive: true, force: true });
