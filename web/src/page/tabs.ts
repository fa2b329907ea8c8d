/** One tab at a time has the studio: two would overwrite each other's photos and checkpoints. */
import { UserError } from "../contract";
import { texts } from "./texts";

/** Milliseconds in which a tab answers another. */
const PATIENCE = 500;

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

/**
 * Without https there are no locks: each tab asks the others by a number, and the negative number is
 * the answer that one of them is there. Of tabs that ask at once, that of the smallest number stays.
 */
function unanswered(name: string): Promise<boolean> {
  const channel = new BroadcastChannel(name);
  let own = 1 - Math.random(); // above 0, which is that of the tab that stays
  return new Promise((resolve) => {
    const end = (isFree: boolean) => {
      clearTimeout(timer);
      if (isFree) own = 0;
      else channel.close();
      resolve(isFree);
    };
    const timer = setTimeout(() => end(true), PATIENCE);
    channel.onmessage = ({ data }: MessageEvent<number>) => {
      if (data > own) channel.postMessage(-data);
      else if (data > 0 || data === -own) end(false);
    };
    channel.postMessage(own);
  });
}
