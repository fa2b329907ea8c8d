import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Awake } from "../../src/page/train/awake";

interface Lock {
  released: boolean;
  release(): Promise<void>;
}

let locks: Lock[];
let shown: () => void;

beforeEach(() => {
  locks = [];
  const request = async () => {
    const lock: Lock = { released: false, release: async () => void (lock.released = true) };
    locks.push(lock);
    return lock;
  };
  vi.stubGlobal("navigator", { wakeLock: { request } });
  const addEventListener = (_: string, listener: () => void) => (shown = listener);
  vi.stubGlobal("document", { hidden: false, addEventListener });
});
afterEach(() => void vi.unstubAllGlobals());

const settled = () => new Promise((resolve) => setTimeout(resolve));
const held = () => locks.filter(({ released }) => !released).length;

it.each([
  [[true], 1],
  [[true, false], 0],
  [[true, false, true], 1],
  [[true, true, false], 0],
])("the screen is held as was asked last, at once after each other: %s", async (asked, count) => {
  const awake = new Awake();
  for (const wanted of asked) awake.set(wanted);
  await settled();
  expect(held()).toBe(count);
});

it("a page that comes back holds the screen again, if it did", async () => {
  const awake = new Awake();
  awake.set(true);
  await settled();
  locks[0]!.released = true; // it was hidden
  shown();
  await settled();
  expect([locks.length, held()]).toEqual([2, 1]);
  awake.set(false);
  shown();
  await settled();
  expect([locks.length, held()]).toEqual([2, 0]);
});

it("a browser without such a lock is none the worse", async () => {
  vi.stubGlobal("navigator", {});
  const awake = new Awake();
  awake.set(true);
  awake.set(false);
  await settled();
  expect(held()).toBe(0);
});
