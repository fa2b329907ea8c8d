/** The screen stays on while a run goes on: a phone whose screen goes dark halts the page. */
export class Awake {
  private wanted = false;
  private lock: WakeLockSentinel | undefined;
  private changes: Promise<void> = Promise.resolve();

  constructor() {
    // A hidden page loses the lock.
    document.addEventListener("visibilitychange", () => this.change());
  }

  set(wanted: boolean): void {
    this.wanted = wanted;
    this.change();
  }

  /** One change after the other: of two locks, the first would never be released. */
  private change(): void {
    this.changes = this.changes.then(() => this.follow());
  }

  private async follow(): Promise<void> {
    const isHeld = this.lock?.released === false;
    if (!this.wanted) {
      if (isHeld) await this.lock!.release();
    } else if (!isHeld && !document.hidden) {
      // Not every browser has it, and none gives it while the battery is low.
      this.lock = await navigator.wakeLock?.request("screen").catch(() => undefined);
    }
  }
}
