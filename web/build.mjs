/**
 * Builds the page, its workers and the compressed runtime into src/pocketune/studio/site/, and fails
 * where they take more than the limits of CONTRIBUTING.md.
 */
import console from "node:console";
import { cp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const site = join(here, "../src/pocketune/studio/site");
const runtime = dirname(createRequire(import.meta.url).resolve("onnxruntime-web/wasm"));
/** Most bytes, compressed: of the page and its worker, and of these with the runtime. */
const MOST = { page: 120_000, all: 4_000_000 };
/** The runtime of each device, and where its code and loader are. */
const RUNTIMES = {
  wasm: ["onnxruntime-web/wasm", "ort-wasm-simd-threaded"],
  webgpu: ["onnxruntime-web/jspi", "ort-wasm-simd-threaded.jspi"],
};

await rm(site, { recursive: true, force: true });
await mkdir(site, { recursive: true });
const shared = {
  outdir: site,
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  legalComments: "none",
  // The runtime's loader is a file of its own: the threads that it starts load it once more.
  conditions: ["onnxruntime-web-use-extern-wasm"],
  logLevel: "warning",
};
// Its name has its hash: a page that stays open while the site changes never gets another version.
const workers = {};
/** Files of all bundles. */
const sources = [];
for (const [device, [module]] of Object.entries(RUNTIMES)) {
  const { metafile } = await build({
    ...shared,
    entryPoints: { [`worker-${device}`]: join(here, "src/engine/worker.ts") },
    entryNames: "[name]-[hash]",
    alias: { "onnxruntime-web/wasm": module },
    define: { DEVICE: JSON.stringify(device) },
    metafile: true,
  });
  workers[device] = basename(Object.keys(metafile.outputs)[0]);
  sources.push(...Object.keys(metafile.inputs));
}
const { metafile } = await build({
  ...shared,
  entryPoints: {
    main: join(here, "src/page/main.ts"),
    "service-worker": join(here, "src/page/service-worker.ts"),
  },
  define: { WORKERS: JSON.stringify(workers) },
  metafile: true,
});
sources.push(...Object.keys(metafile.inputs));
for (const name of ["index.html", "styles.css", "icon.svg", "app.webmanifest"]) {
  await cp(join(here, "src/page", name), join(site, name));
}
await writeFile(join(site, "licenses.txt"), await licenses());
for (const [, name] of Object.values(RUNTIMES)) {
  await cp(join(runtime, `${name}.mjs`), join(site, `${name}.mjs`));
  // The page decompresses it, so that any static host can serve it.
  const wasm = await readFile(join(runtime, `${name}.wasm`));
  await writeFile(join(site, `${name}.wasm.gz`), gzipSync(wasm, { level: 9 }));
}

await checkSizes();

/** The GPU's worker and runtime are loaded only where they are used. */
async function checkSizes() {
  const page = await compressed("index.html", "styles.css", "main.js", workers.wasm);
  const [, name] = RUNTIMES.wasm;
  const all = page + (await compressed(`${name}.mjs`, `${name}.wasm.gz`));
  console.log(`compressed: page and worker ${page} bytes, with the runtime ${all}`);
  if (page <= MOST.page && all <= MOST.all) return;
  console.error(`more than ${MOST.page} and ${MOST.all} bytes: make the page smaller`);
  process.exitCode = 1;
}

async function compressed(...names) {
  const sizes = names.map(async (name) => {
    const data = await readFile(join(site, name));
    return name.endsWith(".gz") ? data.length : gzipSync(data, { level: 9 }).length;
  });
  return (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0);
}

/** What the authors of the bundled kits and packages ask to be said with each copy. */
async function licenses() {
  const named = sources.map(
    (path) => /^(?:.*\/)?node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1],
  );
  const packages = [...new Set(named)].filter(Boolean).sort();
  const texts = packages.map(async (name) => {
    const folder = join(here, "node_modules", name);
    const { version } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
    const text = await readFile(join(folder, "LICENSE"), "utf8").catch(
      () => readFile(join(here, "licenses", `${name}.txt`), "utf8"), // it comes without one
    );
    return `${name} ${version}\n\n${text.trim().replaceAll("{version}", version)}\n`;
  });
  const kits = await readFile(join(here, "../NOTICE"), "utf8");
  return [kits, ...(await Promise.all(texts))].join("\n----\n\n");
}
