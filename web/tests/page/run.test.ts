import "fake-indexeddb/auto";
import { beforeEach, describe, expect, it, vi } from "vitest";
import type { Job } from "../../src/contract";
import type { ToWorker } from "../../src/engine/messages";
import type { Catalog } from "../../src/page/kits";
import { Project } from "../../src/page/project";
import { Run } from "../../src/page/train/run";
import type { ModelRecord } from "../../src/storage/schema";
import { Store } from "../../src/storage/store";

let number = 0;
let project: Project;
let jobs: Job[];

beforeEach(async () => {
  jobs = [];
  vi.stubGlobal("navigator", { hardwareConcurrency: 2 });
  vi.stubGlobal("WORKERS", { wasm: "worker.js", webgpu: "gpu.js" });
  vi.stubGlobal(
    "Worker",
    class {
      postMessage(message: ToWorker) {
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

async function started(from?: ModelRecord): Promise<Job> {
  const catalog = { keep: async () => new Uint8Array([1]) } as unknown as Catalog;
  const nothing = () => undefined;
  const run = new Run(project, catalog, nothing, nothing, nothing);
  await run.start({ optimizer: "adam", seed: 0 }, from);
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
