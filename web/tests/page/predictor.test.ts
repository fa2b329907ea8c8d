import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { UserError } from "../../src/contract";
import type { FromWorker, ToWorker } from "../../src/engine/messages";
import type { Catalog } from "../../src/page/kits";
import { ModelInUse } from "../../src/page/use/model";
import type { ModelRecord } from "../../src/storage/schema";

/** What each worker says; none of them answers by itself. */
let workers: ((data: FromWorker) => void)[];
let ended: number;
/** Ids of the predictions that wait. */
let asked: number[];
/** Why a worker can be sent no model. */
let refusal: Error | undefined;

beforeEach(() => {
  [workers, ended, asked, refusal] = [[], 0, [], undefined];
  vi.stubGlobal("navigator", { hardwareConcurrency: 2 });
  vi.stubGlobal("WORKERS", { wasm: "worker.js", webgpu: "gpu.js" });
  vi.stubGlobal(
    "Worker",
    class {
      onmessage: (message: { data: FromWorker }) => void = () => undefined;
      constructor() {
        workers.push((data) => this.onmessage({ data }));
      }
      postMessage(message: ToWorker) {
        if (message.kind === "open" && refusal) throw refusal;
        if (message.kind === "predict") asked.push(message.id);
      }
      terminate() {
        ended += 1;
      }
    },
  );
});
afterEach(() => void vi.unstubAllGlobals());

const RECORD = { task: "classification", classes: ["cats", "dogs"], known: null } as ModelRecord;
const PHOTO = new Blob(["photo"]);
const ERROR = { kind: "error", message: "out of memory", final: false } as const;

function opened(zip = async () => new Uint8Array([1])): ModelInUse {
  return new ModelInUse(RECORD, { zip } as unknown as Catalog);
}

/** What the last worker gives for a photo. */
async function answered(model: ModelInUse): Promise<number[]> {
  asked = [];
  const answer = model.predict([PHOTO]);
  await vi.waitFor(() => expect(asked).toHaveLength(1));
  const facts = { embedding: null, distance: null, unknown: false };
  const predictions = [{ ...facts, probabilities: new Float32Array([0, 1]) }];
  workers.at(-1)!({ kind: "predictions", id: asked[0]!, predictions, heapBytes: 1 });
  return (await answer)[0]!.told;
}

it("a worker that fails is replaced for the next photo", async () => {
  const model = opened();
  const waiting = [model.predict([PHOTO]), model.predict([PHOTO])];
  await vi.waitFor(() => expect(asked).toHaveLength(2));
  workers[0]!(ERROR);
  for (const each of waiting) await expect(each).rejects.toThrow("out of memory");
  expect(await answered(model)).toEqual([1]);
  expect([workers.length, ended]).toEqual([2, 1]);
});

it("a worker that fails before the first photo is replaced for it", async () => {
  const model = opened();
  await model.prepare();
  workers[0]!(ERROR);
  expect(await answered(model)).toEqual([1]);
});

it("a worker that cannot be sent the model is ended, and replaced for the first photo", async () => {
  refusal = new DOMException("out of memory", "DataCloneError");
  const model = opened();
  await expect(model.prepare()).rejects.toThrow("out of memory");
  expect([workers.length, ended]).toEqual([1, 1]);
  refusal = undefined;
  expect(await answered(model)).toEqual([1]);
});

it("a kit that could not be had is asked for again", async () => {
  let online = false;
  const model = opened(async () => {
    if (!online) throw new UserError("The kit cannot be loaded.");
    return new Uint8Array([1]);
  });
  await expect(model.prepare()).rejects.toThrow("cannot be loaded");
  online = true;
  expect(await answered(model)).toEqual([1]);
});

it("a worker that was closed while it failed is none of the next one", async () => {
  let fail: (error: Error) => void = () => undefined;
  let fetched = 0;
  const model = opened(() =>
    fetched++
      ? Promise.resolve(new Uint8Array([1]))
      : new Promise((_, reject) => {
          fail = reject;
        }),
  );
  const first = model.prepare();
  model.close();
  await model.prepare();
  fail(new UserError("The kit cannot be loaded."));
  await expect(first).rejects.toThrow("cannot be loaded");
  expect(await answered(model)).toEqual([1]);
  expect(workers.length).toBe(1);
});
