/** The screen stays on while a run goes on: a phone whose screen goes dark halts the page. */
export class Awake {
  private wanted = false;
  private lock: WakeLockSentinel | undefined;

  constructor() {
    // A hidden page loses the lock.
    document.addEventListener("visibilitychange", () => void this.hold());
  }

  set(wanted: boolean): void {
    this.wanted = wanted;
    if (wanted) void this.hold();
    else void this.lock?.release();
  }

  private async hold(): Promise<void> {
    if (!this.wanted || document.hidden || this.lock?.released === false) return;
    // Not every browser has it, and none gives it while the battery is low.
    this.lock = await navigator.wakeLock?.request("screen").catch(() => undefined);
    if (!this.wanted) void this.lock?.release();
  }
}
