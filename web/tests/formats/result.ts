/** The result of a run as the engine gives it. */
import type { RunResult } from "../../src/contract";
import type { About, Model } from "../../src/formats/run";

export const about: About = {
  photosName: "pets",
  photos: [{ id: 1, name: "a.jpg", label: [0], split: "train" }],
  version: "0.1.0",
  machine: { system: "Linux", processor: "x86-64", cores: 2 },
};

/** What the engine would give for a run with these values. */
export function resultOf(model: Model): RunResult {
  const { classes, parameters, known, log, score } = model;
  return {
    kitHash: model.kit.hash,
    task: model.kit.manifest.task.name,
    classes,
    parameters,
    known,
    log,
    settings: {
      epochs: 2,
      optimizer: "adam",
      lr: 0.01,
      head_lr: 1,
      bias_lr: 0.01,
      side_lr: 0.01,
      decode_lr: 0.01,
      momentum: null,
      weight_decay: 0,
      warmup: 0,
      patience: 0,
      balance: 0,
      head_start: "auto",
      cache: "auto",
      draws: 4,
      seed: 0,
      threads: 1,
    },
    photos: { training: 18, validation: 6, imbalance: 1 },
    counters: {
      step: 10,
      epoch: 2,
      batch: 0,
      lossSum: 0,
      correct: 0,
      started: true,
      finished: "steps",
      start: score,
      best: score,
      bestStep: model.step,
      judged: score,
      refitted: null,
      trained: score,
      stale: 0,
      head: "class means",
      headImages: 18,
      estimate: null,
      elapsed: 1,
    },
    last: score,
    confusion: [
      [
        [3, 0],
        [1, 1],
      ],
    ],
    mistakes: [],
    heapBytes: 20_000_000,
    runtime: "onnxruntime-web 1.30.0",
    seconds: 2,
    stepSeconds: 0.01,
  };
}
