/** One tab at a time has the studio: two would overwrite each other's photos and checkpoints. */
import { UserError } from "../contract";
import { texts } from "./texts";

/** Milliseconds in which a tab answers another. */
const PATIENCE = 500;
const TAKEN = "taken";

/**
 * Hold this name until the tab is closed.
 *
 * @throws UserError if another tab has it.
 */
export async function onlyTab(name: string): Promise<void> {
  if (!(await (navigator.locks ? locked(name) : unanswered(name)))) {
    throw new UserError(texts.otherTab);
  }
}

/** The lock goes with the tab. */
function locked(name: string): Promise<boolean> {
  return new Promise((resolve) => {
    void navigator.locks.request(name, { ifAvailable: true }, (lock) => {
      resolve(lock !== null);
      return lock ? new Promise(() => undefined) : undefined;
    });
  });
}

/** Without https there are no locks: tabs ask each other. Of two that ask at once, one is answered. */
function unanswered(name: string): Promise<boolean> {
  const channel = new BroadcastChannel(name);
  let own = Math.random();
  return new Promise((resolve) => {
    const end = (isFree: boolean) => {
      clearTimeout(timer);
      if (isFree) own = -1;
      else channel.close();
      resolve(isFree);
    };
    const timer = setTimeout(() => end(true), PATIENCE);
    channel.onmessage = ({ data }: MessageEvent<number | typeof TAKEN>) => {
      if (data !== TAKEN && data > own) channel.postMessage(TAKEN);
      else if (data === TAKEN && own >= 0) end(false);
    };
    channel.postMessage(own);
  });
}
