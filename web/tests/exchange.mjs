/** Bundles exchange.ts and runs it on a folder. */
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const outfile = join(here, "../node_modules/.cache/exchange.mjs");
await build({
  entryPoints: [join(here, "exchange.ts")],
  outfile,
  bundle: true,
  platform: "node",
  format: "esm",
  target: "node20",
  packages: "external",
});
await import(outfile);
