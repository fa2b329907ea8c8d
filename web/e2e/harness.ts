/** A folder with the built site's runtime and worker, and the harness in place of the page. */
import { cp, mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const path = (relative: string) => fileURLToPath(new URL(relative, import.meta.url));

export const CHROMIUM = process.env["CHROMIUM"] ?? "/usr/bin/chromium";
export const SITE = path("../../src/pocketune/studio/site");

export async function harnessFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "pocketune-engine-"));
  for (const name of [
    "worker.js",
    "ort-wasm-simd-threaded.mjs",
    "ort-wasm-simd-threaded.wasm.gz",
  ]) {
    await cp(join(SITE, name), join(folder, name));
  }
  await cp(path("../../src/pocketune/kit/bundled"), join(folder, "kits"), { recursive: true });
  await cp(path("../tests/fixtures"), join(folder, "kits"), { recursive: true });
  await build({
    entryPoints: [path("engine.harness.ts")],
    outfile: join(folder, "harness.js"),
    bundle: true,
    format: "esm",
    logLevel: "warning",
  });
  await writeFile(
    join(folder, "index.html"),
    '<!doctype html><script type="module" src="harness.js"></script>',
  );
  return folder;
}
