import "fake-indexeddb/auto";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { type Checkpoint, type Job, type TrainEvent, UserError } from "../../src/contract";
import type { FromWorker, ToWorker } from "../../src/engine/messages";
import type { Catalog } from "../../src/page/kits";
import { Project } from "../../src/page/project";
import { Run } from "../../src/page/train/run";
import type { ModelRecord } from "../../src/storage/schema";
import { Store } from "../../src/storage/store";

let number = 0;
let project: Project;
let jobs: Job[];
/** What the worker of the last run says. */
let say: (data: FromWorker) => void;
/** What it says cannot be read. */
let garble: () => void;
/** What the worker cannot be sent. */
let refused: ToWorker["kind"] | undefined;
/** Why there can be no worker. */
let lack: Error | undefined;

beforeEach(async () => {
  jobs = [];
  [refused, lack] = [undefined, undefined];
  vi.stubGlobal("navigator", { hardwareConcurrency: 2 });
  vi.stubGlobal("WORKERS", { wasm: "worker.js", webgpu: "gpu.js" });
  vi.stubGlobal(
    "Worker",
    class {
      onmessage: (message: { data: FromWorker }) => void = () => undefined;
      onmessageerror: () => void = () => undefined;
      constructor() {
        if (lack) throw lack;
        say = (data) => this.onmessage({ data });
        garble = () => this.onmessageerror();
      }
      postMessage(message: ToWorker) {
        if (message.kind === refused) throw new DOMException("out of memory", "DataCloneError");
        if (message.kind === "train") jobs.push(message.job);
      }
      terminate() {}
    },
  );
  project = await Project.open(await Store.open(`further-${number++}`));
  project.kit = "hash";
  await project.rename(1, "dogs");
  await project.rename(2, "cats");
  const blob = new Blob(["x"]);
  const facts = { part: null, recording: 0, blob, thumbnail: blob };
  await project.add([1, 2, 2].map((owner, i) => ({ name: `${i}`, owners: [owner], ...facts })));
});
afterEach(() => void vi.unstubAllGlobals());

const CHOICES = { optimizer: "adam", seed: 0 } as const;
const KIT = Promise.resolve(new Uint8Array([1]));

/** A run whose kit is there once it has been fetched, and what is heard of it. */
function newRun(kit = KIT, classes = ["0", "1"]): { run: Run; heard: TrainEvent[] } {
  const catalog = { keep: () => kit, find: () => ({ classes }) } as unknown as Catalog;
  const heard: TrainEvent[] = [];
  const nothing = () => undefined;
  return { run: new Run(project, catalog, (event) => heard.push(event), nothing, nothing), heard };
}

async function started(from?: ModelRecord): Promise<Job> {
  await newRun().run.start(CHOICES, from);
  await vi.waitFor(() => expect(jobs).toHaveLength(1));
  return jobs[0]!;
}

const trained = (classes: string[]): ModelRecord => ({
  ...{
    name: "run.zip",
    kitHash: "hash",
    task: "classification",
    known: null,
    step: 3,
    score: null,
    run: null,
  },
  classes,
  parameters: new Map([["bias", { shape: [2], data: new Float32Array([4, 5]) }]]),
});

const labels = ({ classes, photos }: Job) =>
  photos.photos.map(({ name, label }) => [name, classes[label[0]!]]);

describe("a run", () => {
  it("begins with the kit's values", async () => {
    const job = await started();
    expect(job.start).toBeUndefined();
    expect(job.classes).toEqual(["dogs", "cats"]);
  });

  it("has the order of the kit's classes if they are the same, whose classifier is for these", async () => {
    await newRun(KIT, ["cats", "dogs"]).run.start(CHOICES);
    await vi.waitFor(() => expect(jobs).toHaveLength(1));
    expect(jobs[0]!.classes).toEqual(["cats", "dogs"]);
    expect(labels(jobs[0]!)).toContainEqual(["0", "dogs"]);
  });

  it("begins with those of another run, whose order the same classes get", async () => {
    const model = trained(["cats", "dogs"]);
    const job = await started(model);
    expect(job.start).toEqual({ classes: model.classes, parameters: model.parameters });
    expect(job.classes).toEqual(["cats", "dogs"]);
    expect(labels(job)).toContainEqual(["0", "dogs"]);
    expect(labels(job)).toContainEqual(["1", "cats"]);
  });

  it.each([[["cats", "birds"]], [["cats", "dogs", "birds"]]])(
    "keeps the page's classes where those of the other run are %s",
    async (classes) => {
      const job = await started(trained(classes));
      expect(job.classes).toEqual(["dogs", "cats"]);
      expect(job.start!.classes).toEqual(classes);
    },
  );
});

it("a run that fails leaves its last checkpoint", async () => {
  const { run, heard } = newRun();
  await run.start(CHOICES);
  await vi.waitFor(() => expect(jobs).toHaveLength(1));
  expect(await run.lastCheckpoint()).toBeUndefined();
  for (const epoch of [1, 2]) {
    say({ kind: "checkpoint", state: { counters: { epoch } } as Checkpoint });
  }
  say({ kind: "error", message: "The run has failed.", final: false });
  expect([heard.at(-1)!.kind, run.isRunning]).toEqual(["error", false]);
  expect((await run.lastCheckpoint())!.counters.epoch).toBe(2);
});

describe("a run fails", () => {
  it("if its worker cannot be sent it", async () => {
    refused = "train";
    const { run, heard } = newRun();
    await run.start(CHOICES);
    const message = "The run has failed: out of memory";
    await vi.waitFor(() => expect(heard.at(-1)).toEqual({ kind: "error", message, final: false }));
    expect(run.isRunning).toBe(false);
  });

  it("if there can be no worker", async () => {
    lack = new Error("out of memory");
    const { run, heard } = newRun();
    await run.start(CHOICES);
    const message = "The run has failed: out of memory";
    await vi.waitFor(() => expect(heard).toEqual([{ kind: "error", message, final: false }]));
    expect(run.isRunning).toBe(false);
  });

  it("if what its worker says cannot be read", async () => {
    const { run, heard } = newRun();
    await run.start(CHOICES);
    await vi.waitFor(() => expect(jobs).toHaveLength(1));
    garble();
    expect(heard.at(-1)).toMatchObject({ kind: "error", final: false });
    expect(run.isRunning).toBe(false);
  });
});

it("a run that would fail again leaves nothing to go on from", async () => {
  const { run } = newRun();
  await run.start(CHOICES);
  await vi.waitFor(() => expect(jobs).toHaveLength(1));
  say({ kind: "checkpoint", state: { counters: { epoch: 1 } } as Checkpoint });
  say({ kind: "error", message: "The loss is not finite.", final: true });
  expect(await run.lastCheckpoint()).toBeUndefined();
});

describe("the checkpoint of another run", () => {
  const before = { counters: { epoch: 7 } } as Checkpoint;
  const begun = async () => {
    await project.store.saveCheckpoint(before);
    const { run } = newRun();
    await run.start(CHOICES);
    await vi.waitFor(() => expect(jobs).toHaveLength(1));
    return run;
  };

  it("stays until there is one of the new run", async () => {
    const run = await begun();
    expect(await run.lastCheckpoint()).toEqual(before);
    const after = { counters: { epoch: 1 } } as Checkpoint;
    say({ kind: "checkpoint", state: after });
    expect(await run.lastCheckpoint()).toEqual(after);
  });

  it("stays if the new run fails before", async () => {
    const run = await begun();
    say({ kind: "error", message: "The loss is not finite.", final: true });
    expect(await run.lastCheckpoint()).toEqual(before);
  });
});

describe("a run whose kit is still being fetched", () => {
  it("can be stopped, with nothing to keep", async () => {
    const { run, heard } = newRun();
    const starting = run.start(CHOICES);
    expect(run.isRunning).toBe(true);
    run.stop();
    await starting;
    await settled();
    expect([heard, jobs, run.isRunning]).toEqual([[{ kind: "stopped" }], [], false]);
  });

  it("can be abandoned, without a word", async () => {
    const { run, heard } = newRun();
    const starting = run.start(CHOICES);
    await run.abandon();
    await starting;
    await settled();
    expect([heard, jobs, run.isRunning]).toEqual([[], [], false]);
  });

  it("is abandoned once the kit is kept, which can then be deleted", async () => {
    let fetched: (kit: Uint8Array) => void = () => undefined;
    const kit = new Promise<Uint8Array>((resolve) => (fetched = resolve));
    const { run } = newRun(kit as typeof KIT);
    void run.start(CHOICES);
    let abandoned = false;
    const abandoning = run.abandon().then(() => (abandoned = true));
    await settled();
    expect(abandoned).toBe(false);
    fetched(new Uint8Array([1]));
    await abandoning;
    expect(jobs).toEqual([]);
  });

  it("does not begin if there is none", async () => {
    const { run, heard } = newRun(Promise.reject(new UserError("no kit")));
    await expect(run.start(CHOICES)).rejects.toThrow("no kit");
    expect([heard, jobs, run.isRunning]).toEqual([[], [], false]);
  });
});

it("a run that no GPU can be tried with is computed without", async () => {
  const gpu = { requestAdapter: () => Promise.resolve({}) };
  vi.stubGlobal("navigator", { hardwareConcurrency: 2, gpu });
  vi.stubGlobal("WebAssembly", { Suspending: true });
  refused = "try";
  const { run, heard } = newRun();
  await run.start(CHOICES);
  await vi.waitFor(() => expect(jobs).toHaveLength(1));
  expect(heard).toEqual([{ kind: "device", choice: { device: "wasm", speedup: null } }]);
});

it("a run is stopped while its device is chosen", async () => {
  const { run, heard } = newRun();
  let answer: (adapter: null) => void = () => undefined;
  const gpu = { requestAdapter: () => new Promise((resolve) => (answer = resolve)) };
  vi.stubGlobal("navigator", { hardwareConcurrency: 2, gpu });
  vi.stubGlobal("WebAssembly", { Suspending: true });
  await run.start(CHOICES);
  run.stop();
  expect([heard, run.isRunning]).toEqual([[{ kind: "stopped" }], false]);
  answer(null);
  await settled();
  expect([heard.length, jobs]).toEqual([1, []]);
});

/** Let everything happen that waits for nothing else. */
const settled = () => new Promise((resolve) => setTimeout(resolve, 20));
