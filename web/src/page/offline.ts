/** The service worker: the page without a network, and threads where the host sets no headers. */

const RELOADED = "pocketune-isolated";

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
  await controlled(workers);
  location.reload();
  await new Promise(() => undefined); // nothing more on the page that is left
}

async function controlled(workers: ServiceWorkerContainer): Promise<void> {
  if (workers.controller) return;
  await new Promise<void>((resolve) => {
    workers.addEventListener("controllerchange", () => resolve(), { once: true });
    void workers.ready.then(() => workers.controller && resolve());
  });
}
