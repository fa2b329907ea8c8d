/** How many threads compute, and why not two. */
import { texts } from "../texts";

/** Two where the page is isolated and the device has two cores. */
export function threads(): number {
  return globalThis.crossOriginIsolated ? Math.min(2, navigator.hardwareConcurrency || 1) : 1;
}

/** Why it is only one, and what helps; empty where there are two. */
export function whyOneThread(): string {
  if (threads() > 1) return "";
  const { insecure, notIsolated, oneCore } = texts.oneThread;
  if (!globalThis.isSecureContext) return insecure;
  return globalThis.crossOriginIsolated ? oneCore : notIsolated;
}
