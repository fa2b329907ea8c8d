import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { scoped } from "../../src/page/scope";

const ROOT = "https://host/";
type Act = (event: object) => void;

/** Caches by name, and their files by address. */
let kept: Map<string, Map<string, string>>;
/** What the host answers, by path; a file without a text never comes. */
let site: Record<string, string | undefined>;
let handlers: Map<string, Act>;
let waiting: Promise<unknown>[];

beforeEach(() => {
  vi.useFakeTimers();
  vi.resetModules();
  [kept, handlers, waiting] = [new Map(), new Map(), []];
  const address = (path: string | { url: string }) =>
    new URL(typeof path === "string" ? path : path.url, ROOT).href;
  const open = (files: Map<string, string>) => ({
    match: async (path: string) => {
      const text = files.get(address(path));
      return text === undefined ? undefined : new Response(text);
    },
    put: async (path: string, response: Response) =>
      void files.set(address(path), await response.text()),
    keys: async () => [...files.keys()].map((url) => ({ url })),
  });
  vi.stubGlobal("caches", {
    has: async (name: string) => kept.has(name),
    keys: async () => [...kept.keys()],
    delete: async (name: string) => kept.delete(name),
    open: async (name: string) => {
      if (!kept.has(name)) kept.set(name, new Map());
      return open(kept.get(name)!);
    },
  });
  vi.stubGlobal("fetch", (path: string | { url: string }) => {
    const text = site[address(path).slice(ROOT.length) || "index.html"];
    return text === undefined ? new Promise(() => undefined) : Promise.resolve(new Response(text));
  });
  const location = new URL("service-worker.js", ROOT);
  const addEventListener = (kind: string, act: Act) => void handlers.set(kind, act);
  vi.stubGlobal("self", { location, addEventListener });
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

const listing = (version: string) =>
  JSON.stringify({ version, files: { "index.html": version, "main.js": version } });
const version = (name: string) => ({
  "site.json": listing(name),
  "index.html": `page ${name}`,
  "main.js": `code ${name}`,
});

function keep(name: string, files: Record<string, string>): void {
  const named = Object.entries(files).map(([path, text]) => [ROOT + path, text] as const);
  kept.set(name, new Map(named));
}

/** What the worker answers to a visit; time goes by as it needs. */
async function visit(): Promise<string> {
  await import("../../src/page/service-worker");
  let answer: Promise<Response>;
  handlers.get("fetch")!({
    request: { method: "GET", url: ROOT, mode: "navigate" },
    respondWith: (response: Promise<Response>) => void (answer = response),
    waitUntil: (done: Promise<unknown>) => void waiting.push(done),
  });
  await vi.advanceTimersByTimeAsync(10_000);
  return (await answer!).text();
}

describe("a visit", () => {
  it("gets the version of the site, and no other is kept", async () => {
    keep("pocketune-1", version("1"));
    site = version("2");
    expect(await visit()).toBe("page 2");
    expect([...kept.keys()]).toEqual(["pocketune-2"]);
    expect([...kept.get("pocketune-2")!.keys()].length).toBe(3);
  });

  it("leaves studios in other folders alone, whose names differ", async () => {
    keep("pocketune-/below/3", version("3"));
    keep("pocketune-1", version("1"));
    site = version("2");
    expect(await visit()).toBe("page 2");
    expect([...kept.keys()]).toEqual(["pocketune-/below/3", "pocketune-2"]);
  });

  it("completes a version that was left unfinished", async () => {
    keep("pocketune-1", version("1"));
    keep("pocketune-2", { "main.js": "code 2" });
    site = version("2");
    expect(await visit()).toBe("page 2");
    expect([...kept.keys()]).toEqual(["pocketune-2"]);
  });

  it("deletes what the version before has left", async () => {
    keep("pocketune-1", version("1"));
    keep("pocketune-2", version("2"));
    site = version("2");
    expect(await visit()).toBe("page 2");
    expect([...kept.keys()]).toEqual(["pocketune-2"]);
  });

  it("gets what is kept where the new version takes long, which goes on", async () => {
    keep("pocketune-1", version("1"));
    site = { ...version("2"), "main.js": undefined };
    expect(await visit()).toBe("page 1");
    const settled = await Promise.race([waiting[0], Promise.resolve("goes on")]);
    expect(settled).toBe("goes on");
  });
});

it("names have the folder of a page that lies in one", () => {
  expect(scoped("studio", "https://host/")).toBe("studio");
  expect(scoped("studio", "https://host/index.html?a=/b/#train")).toBe("studio");
  expect(scoped("studio", "https://host/a/b/")).toBe("studio/a/b/");
  expect(scoped("studio", "https://host/a/b/service-worker.js")).toBe("studio/a/b/");
});
