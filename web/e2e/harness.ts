/** A folder with the built site's runtime and worker, and another script in place of the page. */
import { cp, mkdtemp, readdir, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { build } from "esbuild";
import type { Device } from "../src/contract";

/** Scripts of npm run in web/. */
const path = (relative: string) => resolve(relative);

export const CHROMIUM = process.env["CHROMIUM"] ?? "/usr/bin/chromium";
export const SITE = path("../src/pocketune/studio/site");

/** Args: the script's file in e2e/; files of workers beside it. */
export async function harnessFolder(script: string, ...workers: string[]): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "pocketune-engine-"));
  const built = await readdir(SITE);
  const workerOf = (device: Device) => built.find((name) => name.startsWith(`worker-${device}-`))!;
  const workerFiles = { wasm: workerOf("wasm"), webgpu: workerOf("webgpu") };
  for (const name of built.filter((name) => /^(ort|worker)-/.test(name))) {
    await cp(join(SITE, name), join(folder, name));
  }
  await cp(path("../src/pocketune/kit/bundled"), join(folder, "kits"), { recursive: true });
  await cp(path("tests/fixtures"), join(folder, "kits"), { recursive: true });
  await build({
    entryPoints: [
      { in: path(`e2e/${script}`), out: "harness" },
      ...workers.map((worker) => path(`e2e/${worker}`)),
    ],
    outdir: folder,
    bundle: true,
    format: "esm",
    define: { WORKERS: JSON.stringify(workerFiles) },
    conditions: ["onnxruntime-web-use-extern-wasm"],
    logLevel: "warning",
  });
  await writeFile(
    join(folder, "index.html"),
    '<!doctype html><script type="module" src="harness.js"></script>',
  );
  return folder;
}
