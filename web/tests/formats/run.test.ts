import { beforeAll, describe, expect, it } from "vitest";
import { UserError, type Kit, type RunResult } from "../../src/contract";
import { baseHash, readDelta, writeDelta } from "../../src/formats/delta";
import { writeModel } from "../../src/formats/export";
import { readModel, trainedOf, writeRun, type Model } from "../../src/formats/run";
import { readOutline } from "../../src/formats/outline";
import { readTensors, writeTensors } from "../../src/formats/tensors";
import { openZip } from "../../src/formats/zip";
import { changed, difference, facts, fixture, text } from "./fixtures";
import { about, resultOf } from "./result";

const RUN = fixture("run.zip");
let model: Model;
let kit: Kit;
let result: RunResult;

beforeAll(async () => {
  model = await readModel(RUN);
  kit = model.kit;
  result = resultOf(model);
});

const refusal = async (promise: Promise<unknown>): Promise<string> => {
  const error: unknown = await promise.then(
    () => null,
    (caught: unknown) => caught,
  );
  expect(error).toBeInstanceOf(UserError);
  return (error as Error).message;
};

describe("a run of the command line", () => {
  it("opens with its best values", () => {
    const known = facts();
    expect(model.isRun).toBe(true);
    expect(model.classes).toEqual(known.classes);
    expect(model.step).toBe(known.step);
    expect(model.score!.value).toBe(known.score);
    for (const [name, values] of Object.entries(known.state)) {
      expect(Array.from(model.parameters.get(name)!.data)).toEqual(values);
    }
    expect(model.known!.threshold.data[0]).toBe(known.threshold);
    expect(model.log.map(({ kind }) => kind)).toContain("epoch");
  });

  it("that has not been validated opens with its last values", async () => {
    const last = await readModel(fixture("last.zip"));
    for (const [name, values] of Object.entries(facts().last)) {
      expect(Array.from(last.parameters.get(name)!.data)).toEqual(values);
    }
    expect(last.score).toBeNull();
  });

  it("that is a kit opens with the kit's values", async () => {
    const own = await readModel(fixture("kit.zip"));
    expect(own.isRun).toBe(false);
    expect(own.parameters).toBe(own.kit.parameters);
  });

  it("that is damaged is refused", async () => {
    const flip = (place: number) => (old: Uint8Array) =>
      old.map((byte, i) => (i === (place < 0 ? old.length + place : place) ? byte ^ 1 : byte));
    for (const place of [3, 20, 120, -10, -1]) {
      const file = changed(RUN, "best.safetensors", flip(place));
      expect(await refusal(readModel(file, "r.zip"))).toMatch(/^best.safetensors in r.zip is /);
    }
    const other = changed(RUN, "best.safetensors", () => fixture("delta.safetensors"));
    expect(await refusal(readModel(other, "r.zip"))).toBe(
      "best.safetensors in r.zip is a safetensors file, but not a Pocketune trained network",
    );
  });

  it("of another kit is refused", async () => {
    const best = await writeTensors(
      model.parameters,
      "trained network",
      new Map<string, never>(
        Object.entries({ classes: model.classes, kit: "00", step: 1, score: null }) as never,
      ),
    );
    const file = changed(RUN, "best.safetensors", () => best);
    expect(await refusal(readModel(file))).toMatch(/ does not belong to the kit next to it$/);
  });
});

describe("a run of the page", () => {
  it("comes back as it was", async () => {
    const again = await readModel(await writeRun(kit, result, about));
    expect(again.kit.hash).toBe(kit.hash);
    expect({ ...again, kit: null }).toEqual({ ...model, kit: null });
  });

  it("has a record with every field of Python's", async () => {
    const files = openZip(await writeRun(kit, result, about), "r");
    const own = JSON.parse(text(files.get("result.json")!.read())) as Record<string, unknown>;
    const theirs = JSON.parse(text(openZip(RUN, "r").get("run/result.json")!.read())) as Record<
      string,
      unknown
    >;
    const keys = (value: unknown) => Object.keys(value as object);
    expect(keys(own)).toEqual(keys(theirs));
    for (const part of ["settings", "photos", "machine", "best"]) {
      expect(keys(own[part])).toEqual(keys(theirs[part]));
    }
    expect(own["parameters"]).toBe(theirs["parameters"]);
    expect(own["step_flops"]).toBe(theirs["step_flops"]);
  });

  it("says how many held-out photos its result leaves out, which were deleted meanwhile", async () => {
    const files = openZip(await writeRun(kit, result, about), "r");
    const { photos } = JSON.parse(text(files.get("result.json")!.read())) as { photos: object };
    expect(photos).toMatchObject({ validation: 6, unreadable: 1 });
  });

  it("with tensors that are not the kit's is not written", async () => {
    const parameters = new Map(result.parameters);
    parameters.delete("scale");
    expect(await refusal(writeRun(kit, { ...result, parameters }, about))).toBe(
      "the run lacks the tensor scale",
    );
  });
});

describe("a delta", () => {
  it("of Python opens with the values of the run", async () => {
    const found = await readDelta(fixture("delta.safetensors"), () => [kit]);
    expect(await baseHash(kit)).toBe(facts().base);
    expect({ ...found, kit: null }).toEqual({ ...trainedOf(result), kit: null });
  });

  it("is written byte for byte as Python writes it", async () => {
    expect(await writeDelta(kit, trainedOf(result))).toEqual(fixture("delta.safetensors"));
  });

  it("of another kit, or damaged, is refused", async () => {
    const other = { ...kit, manifest: { ...kit.manifest, size: 16 } };
    expect(await refusal(readDelta(fixture("delta.safetensors"), () => [other], "d"))).toMatch(
      /^d is a delta of the kit [0-9a-f]{12}, which is not open here/,
    );
    const damaged = fixture("delta.safetensors");
    damaged[damaged.length - 2]! ^= 1;
    expect(await refusal(readDelta(damaged, () => [kit], "d"))).toMatch(/^d is damaged: .*SHA-256/);
    const best = openZip(RUN, "r").get("run/best.safetensors")!.read();
    expect(await refusal(readDelta(best, () => [kit], "d"))).toMatch(/but not a Pocketune delta$/);
  });
});

describe("tensors", () => {
  it("with names of any language come back", async () => {
    const tensors = new Map([
      ["Übung/😀", { shape: [2], data: Float32Array.of(1, -0) }],
      ["10", { shape: [], data: Float32Array.of(7) }],
      ["9", { shape: [0, 3], data: new Float32Array() }],
    ]);
    const bytes = await writeTensors(tensors, "test", new Map([["note", "ü"]]));
    const found = await readTensors(bytes, "test", "t");
    expect(found.tensors).toEqual(tensors);
    expect([...found.tensors.keys()]).toEqual([...tensors.keys()]);
    for (let place = 0; place < bytes.length; place++) {
      const damaged = bytes.slice();
      damaged[place]! ^= 0x20;
      // A digit of an escaped character may be in either case.
      const read = readTensors(damaged, "test", "t").then((file) => file.tensors);
      const same: unknown = await read.catch((error: unknown) => error);
      if (!(same instanceof UserError)) expect(same).toEqual(tensors);
    }
  });
});

describe("model.onnx", () => {
  it("has the structure of Python's", () => {
    const own = readOutline(writeModel(kit, model));
    const theirs = readOutline(fixture("model.onnx"));
    expect(own.nodes).toEqual(theirs.nodes);
    expect([...own.constants].sort()).toEqual([...theirs.constants].sort());
    expect([own.inputs, own.outputs, own.opsets]).toEqual([
      theirs.inputs,
      theirs.outputs,
      theirs.opsets,
    ]);
  });

  it("computes what Python computes", async () => {
    const ort = await import("onnxruntime-web");
    ort.env.wasm.numThreads = 1;
    const known = facts();
    const session = await ort.InferenceSession.create(writeModel(kit, model));
    const images = new ort.Tensor("uint8", Uint8Array.from(known.images), [3, 8, 8, 3]);
    const { logits } = await session.run({ images });
    expect(difference(logits!.data as Float32Array, known.logits)).toBeLessThan(1e-5);
  });
});
