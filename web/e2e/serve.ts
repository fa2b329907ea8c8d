/** A folder on the loopback interface, with the headers of `pocketune studio` or without. */
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { extname, join, normalize } from "node:path";

const TYPES: Record<string, string> = {
  ".html": "text/html",
  ".js": "text/javascript",
  ".mjs": "text/javascript",
  ".png": "image/png",
};

export interface Served {
  url: string;
  close: () => void;
}

/** Args: the folder; whether the page may have threads. */
export async function serve(folder: string, isolated: boolean): Promise<Served> {
  const headers = isolated && {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
  };
  const server = createServer((request, response) => {
    const path = normalize(new URL(request.url ?? "/", "http://x").pathname);
    readFile(join(folder, path)).then(
      (data) => {
        const type = TYPES[extname(path)] ?? "application/octet-stream";
        response.writeHead(200, { "Content-Type": type, ...headers }).end(data);
      },
      () => response.writeHead(404).end(),
    );
  });
  await new Promise<void>((ready) => server.listen(0, "127.0.0.1", ready));
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}`, close: () => server.close() };
}
