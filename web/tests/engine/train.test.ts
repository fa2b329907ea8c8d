import { beforeAll, describe, expect, test } from "vitest";
import { FinalError, type LogLine, type PhotoEntry, type RunResult } from "../../src/contract";
import type { ReadPixels } from "../../src/engine/pixels";
import { openKit, startRuntime } from "./kits";
import { CLASSES, MemoryStore, type Options, photosOf, reader, runSmall } from "./runs";

beforeAll(startRuntime);

const SGD = { optimizer: "sgd", seed: 1, threads: 1, epochs: 3 } as const;

/** All of a result that does not depend on the time. */
function timeless({ log, counters, seconds: _s, stepSeconds: _t, ...rest }: RunResult) {
  const { elapsed: _e, ...counted } = counters;
  return { ...rest, counted, log: log.map(withoutTime) };
}

function withoutTime(line: LogLine) {
  const { elapsed: _e, seconds: _s, images_per_second: _i, ...rest } = line;
  return rest;
}

const rightOf = ([classes]: number[][][]) => classes!.reduce((all, row, i) => all + row[i]!, 0);

describe("a run", () => {
  test("starts from the photos' classifier and ends no worse", async () => {
    const { result, events } = await runSmall();
    const { counters, confusion, log, last, known } = result!;
    expect(counters).toMatchObject({ step: 63, epoch: 9, finished: "steps", headImages: 30 });
    expect(["class means", "LDA", "ridge"]).toContain(counters.head);
    expect(counters.best!.value).toBeGreaterThanOrEqual(counters.start!.value);
    expect(counters.best!.value).toBeGreaterThan(0.5);
    expect(last!.value).toBeLessThanOrEqual(counters.best!.value);
    expect(confusion.flat(2).reduce((a, b) => a + b)).toBe(10);
    const right = rightOf(confusion);
    expect(right / 10).toBeCloseTo(counters.best!.value, 9);
    expect(result!.mistakes.length).toBe(10 - right);
    expect(known!.means.shape).toEqual([3, 6]);
    const kinds = log.map(({ kind }) => kind);
    expect(kinds[0]).toBe("start");
    expect(kinds.filter((kind) => kind === "step").length).toBe(63);
    expect(kinds.filter((kind) => kind === "epoch").length).toBe(9);
    expect(kinds.slice(-2)).toEqual(["refit", "end"]);
    expect(events.filter(({ kind }) => kind === "step").length).toBe(63);
    const epochs = events.flatMap((event) => (event.kind === "epoch" ? [event.epoch] : []));
    const usable = events.flatMap((event) => (event.kind === "epoch" ? [event.usable] : []));
    expect(usable).toEqual(epochs.map(() => true)); // its classifier is computed first
    expect(epochs).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    expect(events.filter(({ kind }) => kind === "checkpoint").length).toBe(1);
  });

  test("begins with a classifier that is as sure as it is right", async () => {
    const { result } = await runSmall({ settings: { ...SGD, epochs: 1, lr: 1e-12 } });
    const [start, step] = result!.log;
    expect([1, 1 / 4, 1 / 16, 1 / 64]).toContain(start!["head_factor"]);
    expect(step!["loss"]).toBeLessThan(2 * Math.log(3));
  });

  test("gives the same bits again", async () => {
    const [first, second] = [await runSmall(), await runSmall()];
    expect(timeless(second.result!)).toEqual(timeless(first.result!));
    const other = await runSmall({ settings: { ...SGD, seed: 2 } });
    expect(other.result!.parameters).not.toEqual(first.result!.parameters);
  });

  test("is not below its start, whatever its steps do", async () => {
    const settings = { ...SGD, lr: 3 };
    const { result } = await runSmall({ settings, kitName: "whole" });
    expect(result!.counters.best!.value).toBeGreaterThanOrEqual(result!.counters.start!.value);
  });

  test("begins with the values of another, whose classifier is kept where it is better", async () => {
    const { result } = await runSmall({ photos: photosOf(40, 100) }); // the last values, not the best
    const kit = await openKit("frozen");
    const from = { state: result!.parameters, stateClasses: CLASSES };
    const further = await runSmall({ ...from, settings: { ...SGD, epochs: 0 } });
    const fresh = await runSmall({ settings: { ...SGD, epochs: 0 } });
    const { head, estimate } = further.result!.counters;
    if (head === "kept") expect(further.result!.parameters).toEqual(result!.parameters);
    else expect(head).toBe(fresh.result!.counters.head);
    expect(estimate!.loss).toBeLessThan(fresh.result!.counters.estimate!.loss + 1e-6);
    for (const { name } of kit.manifest.parameters) {
      if (kit.manifest.task.head.includes(name)) continue;
      expect(further.result!.parameters.get(name)).toEqual(result!.parameters.get(name));
      expect(result!.parameters.get(name)).not.toEqual(kit.parameters.get(name));
    }
  });

  test("without epochs is the classifier of the photos", async () => {
    const { result, checkpoints } = await runSmall({ settings: { ...SGD, epochs: 0 } });
    expect(result!.counters).toMatchObject({ step: 0, finished: "steps", bestStep: 0 });
    expect(result!.log.map(({ kind }) => kind)).toEqual(["start", "end"]);
    expect(checkpoints).toEqual([]);
  });

  test("of few photos without validation is that classifier, too", async () => {
    const photos = photosOf(9).map((photo) => ({ ...photo, split: "train" as const }));
    const { result } = await runSmall({
      photos,
      settings: { optimizer: "adam", seed: 0, threads: 1 },
    });
    expect(result!.counters).toMatchObject({ step: 0, start: null, best: null });
    expect(result!.counters.estimate).not.toBeNull();
  });

  test("of fewer photos than a batch makes one step an epoch", async () => {
    const photos = photosOf(3, 9);
    const { result } = await runSmall({ photos, settings: { ...SGD, epochs: 2 } });
    expect(result!.counters.step).toBe(2);
  });

  test("stops early where validation gains nothing", async () => {
    const photos = photosOf(240).map((photo, i) => ({
      ...photo,
      split: i < 36 ? ("train" as const) : ("validation" as const),
    }));
    const settings = { optimizer: "sgd", seed: 1, threads: 1, lr: 1e-12 } as const;
    const { result } = await runSmall({ photos, settings });
    expect(result!.settings).toMatchObject({ epochs: 28, patience: 14 });
    expect(result!.counters).toMatchObject({ finished: "patience", epoch: 15 });
  });
});

describe.each(["frozen", "whole"] as const)("a resumed run of the kit %s", (kitName) => {
  // Batches of the head, of the first validation, of steps and of later validations.
  test.each([14, 20, 21, 22, 40])("after %i batches ends as if never stopped", async (after) => {
    const settings = { optimizer: "adam", seed: 3, threads: 1, epochs: 9 } as const;
    const options: Options = { kitName, settings, checkpointSeconds: 1e9 };
    const whole = await runSmall(options);
    const requests = [...new Array<"go">(after).fill("go"), "stop" as const];
    const stopped = await runSmall({ ...options, requests });
    expect(stopped.result!.counters.finished).toBe("stopped");
    const resume = stopped.checkpoints.at(-1)!;
    expect(resume.counters.step).toBeLessThan(63);
    const resumed = await runSmall({ ...options, resume });
    expect(timeless(resumed.result!)).toEqual(timeless(whole.result!));
  });

  test("from any of its checkpoints, with sgd", async () => {
    const options: Options = { kitName, settings: SGD, checkpointSeconds: 0 };
    const whole = await runSmall(options);
    expect(whole.checkpoints.length).toBe(22);
    for (const resume of whole.checkpoints.filter((_, i) => i % 5 === 0)) {
      const resumed = await runSmall({ ...options, resume });
      expect(timeless(resumed.result!)).toEqual(timeless(whole.result!));
    }
  });
});

describe("a run that the user stops", () => {
  const after = (batches: number): Options => ({
    settings: SGD,
    requests: [...new Array<"go">(batches).fill("go"), "stop" as const],
  });

  test("ends with its best values so far, and all that a result has", async () => {
    const whole = await runSmall({ settings: SGD });
    const { result, events } = await runSmall(after(24));
    const { counters, confusion, known, log, parameters } = result!;
    expect(counters).toMatchObject({ finished: "stopped", epoch: 1 });
    expect(counters.step).toBeGreaterThan(7);
    expect(counters.step).toBeLessThan(whole.result!.counters.step);
    const values = events.flatMap((each) =>
      each.kind === "epoch" ? [each.validationAccuracy!] : [],
    );
    expect(counters.best!.value).toBe(Math.max(...values));
    const right = rightOf(confusion);
    expect(right / confusion.flat(2).reduce((a, b) => a + b)).toBeCloseTo(counters.best!.value, 9);
    expect([...parameters.keys()]).toEqual([...whole.result!.parameters.keys()]);
    expect(known!.means.shape).toEqual([3, 6]);
    expect(log.at(-1)).toMatchObject({ kind: "end", reason: "stopped" });
  });

  test("without validation ends with its last values", async () => {
    const photos = photosOf(40).map((photo) => ({ ...photo, split: "train" as const }));
    const first = await runSmall({ ...after(16), photos });
    const second = await runSmall({ ...after(17), photos });
    for (const { result } of [first, second]) expect(result!.counters.epoch).toBe(0);
    expect(second.result!.counters.step).toBe(first.result!.counters.step + 1);
    expect(second.result!.counters.bestStep).toBe(second.result!.counters.step);
    expect(second.result!.parameters).not.toEqual(first.result!.parameters);
  });

  test("before it has been validated has nothing to keep", async () => {
    expect((await runSmall(after(0))).result).toBeNull();
  });

  const trainedOnAll = photosOf(40).map((photo) => ({ ...photo, split: "train" as const }));
  test.each([
    ["with steps", { settings: { ...SGD, epochs: 1 } }],
    ["without steps", { settings: { ...SGD, epochs: 0 } }],
    ["without validation", { settings: { ...SGD, epochs: 1 }, photos: trainedOnAll }],
  ])("whenever it can be used has a result, %s", async (_, options: Options) => {
    const stoppedAt = async (batch: number) => {
      let asked = 0;
      const run = await runSmall({
        ...options,
        asked: async () => (asked++ < batch ? "go" : "stop"),
      });
      return { ...run, asked };
    };
    const { result, asked: batches } = await stoppedAt(Infinity);
    expect(batches).toBeGreaterThan(8);
    for (let batch = 0; batch <= batches; batch++) {
      const { events, result: kept } = await stoppedAt(batch);
      const usable = events.some((event) => event.kind === "epoch" && event.usable);
      expect([batch, kept !== null]).toEqual([batch, usable]);
      expect(events.some((event) => event.kind === "phase" && event.phase === "result")).toBe(
        usable,
      );
      if (kept?.counters.finished === "steps") expect(timeless(kept)).toEqual(timeless(result!));
    }
  });
});

describe("features that are kept", () => {
  test("are not computed again, and change nothing", async () => {
    const first = await runSmall();
    const photos = photosOf(40);
    const full = new MemoryStore(photos);
    full.room = false;
    const without = await runSmall({ store: full });
    expect(timeless(without.result!)).toEqual(timeless(first.result!));
    expect(full.photosRead).toBeGreaterThan(first.store.photosRead);
    expect(full.writes).toBeLessThan(5); // once by each loader
    const store = first.store;
    const before = store.photosRead;
    const again = await runSmall({ store });
    expect(timeless(again.result!)).toEqual(timeless(first.result!));
    // Only the classifier's photos, the known ones and those of its second fit.
    expect(store.photosRead - before).toBeLessThanOrEqual(3 * 30 + 10);
  });
});

describe("photos that cannot be decoded", () => {
  test("are replaced in training and left out of validation", async () => {
    const { result } = await runSmall({ read: reader([100, 103]), settings: SGD });
    expect(result!.counters).toMatchObject({ step: 21, headImages: 29 });
    expect(result!.confusion.flat(2).reduce((a, b) => a + b)).toBe(9);
  });

  test("are as good as deleted ones", async () => {
    const photos = photosOf(40);
    const store = new MemoryStore(photos.filter(({ id }) => id !== 100 && id !== 103));
    const { result } = await runSmall({ photos, store, settings: SGD });
    const { result: damaged } = await runSmall({ read: reader([100, 103]), settings: SGD });
    expect(timeless(result!)).toEqual(timeless(damaged!));
  });

  test("end the run if there are no others", async () => {
    const damaged = photosOf(40).map(({ id }) => id);
    const options = { read: reader(damaged), settings: SGD };
    const error: unknown = await runSmall(options).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(FinalError); // as it would fail again
    expect(String(error)).toMatch(/None of the training photos/);
  });
});

test("a pause saves, waits, and changes nothing", async () => {
  const whole = await runSmall({ settings: SGD });
  const requests = [...new Array<"go">(20).fill("go"), "pause" as const, "pause" as const];
  const paused = await runSmall({ settings: SGD, requests });
  const kinds = paused.events.map(({ kind }) => kind);
  expect(kinds.filter((kind) => kind === "paused").length).toBe(1);
  expect(kinds[kinds.indexOf("paused") - 1]).toBe("checkpoint");
  expect(timeless(paused.result!)).toEqual(timeless(whole.result!));
});

test("a pause is no time of the run or of a step", async () => {
  const pause = 1000;
  let batches = 0;
  let end = 0;
  const asked = async () => {
    if (batches++ === 20) end = performance.now() + pause;
    return performance.now() < end ? "pause" : "go";
  };
  const began = performance.now();
  const { result } = await runSmall({ settings: SGD, asked });
  const took = (performance.now() - began - pause) / 1000;
  const steps = result!.log.flatMap(({ kind, seconds }) =>
    kind === "step" ? [Number(seconds)] : [],
  );
  expect(result!.seconds).toBeLessThan(took);
  expect(steps.reduce((sum, seconds) => sum + seconds)).toBeLessThan(took);
});

test("classes of uneven size are trained with offsets, which the result does not have", async () => {
  const photos = photosOf(240).filter(({ label }, i) => label[0] === 0 || i < 12);
  const settings = { ...SGD, lr: 1e-12 };
  const { result } = await runSmall({ photos, settings });
  expect(result!.settings.balance).toBe(0.5);
  const still = await runSmall({ photos, settings: { ...settings, epochs: 0 } });
  const bias = (finished: typeof still) => finished.result!.parameters.get("fc.bias")!.data;
  // Steps begin with a part of the classifier's outputs.
  const factor = result!.counters.bestStep ? Number(result!.log[0]!["head_factor"]) : 1;
  bias({ ...still, result }).forEach((value, c) => {
    expect(value).toBeCloseTo(factor * bias(still)[c]!, 5);
  });
});

test("the known classes are compared with validation photos of all classes", async () => {
  const photos = photosOf(621, 1);
  photos.forEach((photo, i) => (photo.split = i < 12 ? "train" : "validation"));
  photos.sort((a, b) => a.label[0]! - b.label[0]!); // as a project divides them
  const decoded: number[] = [];
  const read: ReadPixels = async (photo, ...rest) => {
    decoded.push((JSON.parse(await (photo as Blob).text()) as PhotoEntry).label[0]!);
    return reader()(photo, ...rest);
  };
  await runSmall({ photos, read, settings: { ...SGD, epochs: 1 } }); // which keeps no features
  const counts = [0, 0, 0];
  for (const label of decoded.slice(-600)) counts[label]! += 1;
  expect(counts).toEqual([200, 200, 200]);
});

test("a classifier of the same classes is kept where it is better", async () => {
  const trained = await runSmall();
  const { parameters } = trained.result!;
  const { result } = await runSmall({ state: parameters, stateClasses: CLASSES, settings: SGD });
  expect(result!.counters.headImages).toBe(30);
  expect(["kept", "class means", "LDA", "ridge"]).toContain(result!.counters.head);
  expect(result!.counters.estimate).not.toBeNull();
});

describe("one sentence says what is wrong", () => {
  test("with a single class", async () => {
    await expect(runSmall({ classes: ["red"] })).rejects.toThrow(/only one class/);
  });

  test("with a class without photos", async () => {
    await expect(runSmall({ classes: [...CLASSES, "gold"] })).rejects.toThrow(/class gold/);
  });

  test("with photos that changed since the run began", async () => {
    const requests = [...new Array<"go">(30).fill("go"), "stop" as const];
    const { checkpoints } = await runSmall({ requests });
    const resume = checkpoints.at(-1)!;
    const photos = photosOf(41);
    await expect(runSmall({ resume, photos })).rejects.toThrow(/photos have changed/);
  });

  test("with a loss that is not finite, after which the best values are kept", async () => {
    const settings = { ...SGD, lr: 1e30 };
    const { result, events } = await runSmall({ settings, kitName: "whole" });
    const said = events.find((event) => event.kind === "diverged");
    expect(said?.message).toMatch(
      /is not finite: start again with a learning rate lower than 1\.0e\+30/,
    );
    const { finished, best, start, step } = result!.counters;
    expect([finished, step]).toEqual(["stopped", 1]);
    expect(best).toEqual(start);
    const values = [...result!.parameters.values()].flatMap(({ data }) => [...data]);
    expect(values.every(Number.isFinite)).toBe(true);
  });
});
