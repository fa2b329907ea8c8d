/**
 * Keeps the page for use without a network, as one whole: all files of one version, which
 * `site.json` lists with their hashes. It also adds the headers that isolate the page, where the
 * host does not set them, because the runtime's threads need shared memory.
 */
import { scoped } from "./scope";
import { plan, type Listing } from "./versions";

/** Of the types of service workers, which TypeScript has only without those of pages. */
interface LastingEvent extends Event {
  waitUntil(done: Promise<unknown>): void;
}
interface FetchEvent extends LastingEvent {
  request: Request;
  respondWith(answer: Promise<Response>): void;
}
interface Worker {
  location: Location;
  clients: { claim(): Promise<void> };
  skipWaiting(): Promise<void>;
  addEventListener(
    kind: "install" | "activate" | "message",
    act: (event: LastingEvent) => void,
  ): void;
  addEventListener(kind: "fetch", act: (event: FetchEvent) => void): void;
}
declare const self: Worker;

const PREFIX = scoped("pocketune-", self.location.href);
const LISTING = "site.json";
const INDEX = "index.html";
/** Milliseconds to wait for a new version before what is kept is used. */
const PATIENCE = 3000;

const HEADERS = {
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Embedder-Policy": "require-corp",
  "Cross-Origin-Resource-Policy": "same-origin",
};

self.addEventListener("install", (event) => {
  event.waitUntil(self.skipWaiting());
});

self.addEventListener("activate", (event) => {
  event.waitUntil(self.clients.claim());
});

/** The page is there and asks that it be kept; what it has loaded itself comes from its cache. */
self.addEventListener("message", (event) => {
  event.waitUntil(update());
});

self.addEventListener("fetch", (event) => {
  const { request } = event;
  const url = new URL(request.url);
  if (request.method !== "GET" || url.origin !== self.location.origin) return;
  // The server moves the token into a cookie and redirects. Left to the browser, the redirect is
  // lost in Chromium where it asks the server while this worker still starts.
  const hasToken = url.search.startsWith("?token=");
  if (hasToken || request.mode !== "navigate") {
    event.respondWith(hasToken ? fetch(request) : answer(request));
    return;
  }
  const updated = update().catch(() => undefined);
  event.waitUntil(updated); // it goes on, for the next visit, where it takes longer
  const late = new Promise((resolve) => setTimeout(resolve, PATIENCE));
  event.respondWith(Promise.race([updated, late]).then(() => answer(request)));
});

async function answer(request: Request): Promise<Response> {
  const kept = await lookUp(request);
  return isolated(kept ?? (await fetch(request)));
}

/** What is kept of the present version. */
async function lookUp(request: Request): Promise<Response | undefined> {
  const cache = await present();
  const root = new URL("./", self.location.href).href;
  const address = request.url.split(/[?#]/)[0]!;
  return cache?.match(address === root ? INDEX : address, { ignoreVary: true });
}

let updating: Promise<void> | undefined;

/** Bring what is kept to the version of the site, once at a time. */
function update(): Promise<void> {
  return (updating ??= bring().finally(() => (updating = undefined)));
}

/** Files that have not changed are not fetched. */
async function bring(): Promise<void> {
  const answered = await fetch(LISTING, { cache: "no-cache" });
  if (!answered.ok) throw new Error(`no ${LISTING}`);
  const listing = (await answered.clone().json()) as Listing;
  const name = PREFIX + listing.version;
  if (await complete(name)) return dropOthers(name);
  const before = await present();
  const old = (await (await before?.match(LISTING))?.json()) as Listing | undefined;
  const { reused, fetched } = plan(old, listing);
  const files = await Promise.all([
    ...reused.map(async (path) => [path, (await before!.match(path))!] as const),
    ...fetched.map(async (path) => [path, await fetchWhole(path)] as const),
  ]);
  const cache = await caches.open(name + ".partial"); // a half of it is never used
  await Promise.all(files.map(([path, response]) => cache.put(path, response)));
  await cache.put(LISTING, answered);
  await replace(name);
}

/** Rename what is complete, and delete other versions. */
async function replace(name: string): Promise<void> {
  const [from, to] = await Promise.all([caches.open(name + ".partial"), caches.open(name)]);
  for (const request of await from.keys()) {
    if (!request.url.endsWith(LISTING)) await to.put(request, (await from.match(request))!);
  }
  await to.put(LISTING, (await from.match(LISTING))!); // the last one, which makes it complete
  await dropOthers(name);
}

/** Other versions, and what an update has left that was not finished. */
async function dropOthers(name: string): Promise<void> {
  for (const other of await ownCaches()) {
    if (other !== name) await caches.delete(other);
  }
}

/** Names of the caches of this page, and not of those in folders below. */
async function ownCaches(): Promise<string[]> {
  const own = (name: string) => name.startsWith(PREFIX) && !name.slice(PREFIX.length).includes("/");
  return (await caches.keys()).filter(own);
}

async function fetchWhole(path: string): Promise<Response> {
  const answered = await fetch(path, { cache: "no-cache" });
  if (!answered.ok) throw new Error(`no ${path}`);
  return answered;
}

/** The version that is kept, if one is complete. */
async function present(): Promise<Cache | undefined> {
  for (const name of await ownCaches()) {
    if (name.endsWith(".partial")) continue;
    const cache = await complete(name);
    if (cache) return cache;
  }
  return undefined;
}

/** The cache of this name, if there is one that has all files. */
async function complete(name: string): Promise<Cache | undefined> {
  if (!(await caches.has(name))) return undefined;
  const cache = await caches.open(name);
  return (await cache.match(LISTING)) && cache;
}

function isolated(response: Response): Response {
  if (response.type === "opaqueredirect" || response.status === 0) return response;
  const headers = new Headers(response.headers);
  for (const [name, value] of Object.entries(HEADERS)) headers.set(name, value);
  const { status, statusText } = response;
  return new Response(response.body, { status, statusText, headers });
}
