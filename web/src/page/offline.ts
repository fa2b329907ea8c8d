/** The service worker: the page without a network, and threads where the host sets no headers. */

import { scoped } from "./scope";

const RELOADED = scoped("pocketune-isolated");
/** Milliseconds to wait for a new service worker. */
const PATIENCE = 5000;

/** Register it. Where only it can isolate the page, the page is loaded once more. */
export async function keepForOffline(): Promise<void> {
  const workers = navigator.serviceWorker;
  if (!workers) return; // a private window, or an address without encryption
  try {
    await workers.register("service-worker.js");
  } catch {
    return;
  }
  if (globalThis.crossOriginIsolated || sessionStorage.getItem(RELOADED)) {
    void workers.ready.then(({ active }) => active?.postMessage("keep"));
    return;
  }
  sessionStorage.setItem(RELOADED, "once");
  if (!(await controlled(workers))) return; // it goes on with one thread
  location.reload();
  await new Promise(() => undefined); // nothing more on the page that is left
}

/** Wait until the service worker answers for the page; false if it does not in a few seconds. */
async function controlled(workers: ServiceWorkerContainer): Promise<boolean> {
  if (workers.controller) return true;
  return new Promise((resolve) => {
    workers.addEventListener("controllerchange", () => resolve(true), { once: true });
    setTimeout(() => resolve(workers.controller !== null), PATIENCE);
  });
}
