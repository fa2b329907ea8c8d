/** The engine as the page sees it: a worker for each run, and one for predictions. */
import {
  type Device,
  type Job,
  type ModelJob,
  type PhotoPrediction,
  type TrainEvent,
  type Trial,
  UserError,
} from "../contract";
import { browserHasGpu, chooseDevice } from "./device";
import { failure, type FromWorker, type Picture, type ToWorker, UNREAD } from "./messages";

/** The files of the workers, which the build names. */
declare const WORKERS: Record<Device, string>;
/** Milliseconds after which a trial has failed. */
const PATIENCE = 60_000;

/** A run in a worker of its own, which is ended to give its memory back. */
export class Trainer {
  private worker: Worker | null = null;
  /** The run that is waiting for its device. */
  private waiting: Job | null = null;
  private request: "go" | "pause" | "stop" = "go";

  /** Args: called with each event; `done`, `stopped` and `error` are the last of a run. */
  constructor(private readonly onEvent: (event: TrainEvent) => void) {}

  get running(): boolean {
    return this.worker !== null || this.waiting !== null;
  }

  start(job: Job): void {
    this.end();
    if (this.request === "stop") return this.hear({ kind: "stopped" });
    this.waiting = job;
    this.begin(job).catch((error: unknown) => {
      if (!this.running) return; // it has ended meanwhile
      this.hear({ kind: "error", message: failure("The run", error), final: false });
    });
  }

  /** On the device that computes the kit sooner. */
  private async begin(job: Job): Promise<void> {
    const { kit, settings } = job;
    const tryOn = (device: Device) => tryInWorker(device, kit, settings.threads);
    const choice = await chooseDevice({ hasGpu: browserHasGpu, tryOn });
    if (this.waiting !== job) return; // it has ended meanwhile
    this.worker = startWorker(
      (event) => this.hear(event),
      (message) => this.hear({ kind: "error", message, final: false }),
      choice.device,
    );
    this.waiting = null; // once there is a worker: without one, the run has failed
    this.hear({ kind: "device", choice });
    say(this.worker, { kind: "train", job });
    if (this.request === "pause") this.ask("pause");
  }

  /** A checkpoint and `paused` follow after the batch. */
  pause(): void {
    this.ask("pause");
  }

  resume(): void {
    this.ask("go");
  }

  /** After the batch, `done` follows with the best values; `stopped` if there are none yet. */
  stop(): void {
    if (this.waiting) this.hear({ kind: "stopped" });
    else this.ask("stop");
  }

  /** End the run at once; nothing follows. */
  abandon(): void {
    this.end();
  }

  private ask(request: "go" | "pause" | "stop"): void {
    this.request = request;
    if (this.worker) say(this.worker, { kind: "ask", request });
  }

  private hear(event: FromWorker): void {
    if (event.kind === "predictions" || event.kind === "tried") return;
    if (event.kind === "done" || event.kind === "stopped" || event.kind === "error") this.end();
    this.onEvent(event);
  }

  private end(): void {
    this.worker?.terminate();
    this.worker = null;
    this.waiting = null;
  }
}

/** A few steps in a worker of their own; null if they fail or take more milliseconds than given. */
export function tryInWorker(
  device: Device,
  kit: Uint8Array,
  threads: number,
  patience = PATIENCE,
): Promise<Trial | null> {
  return new Promise((resolve) => {
    const end = (trial: Trial | null) => {
      clearTimeout(timer);
      worker.terminate();
      resolve(trial);
    };
    const hear = (message: FromWorker) => end(message.kind === "tried" ? message.trial : null);
    const worker = startWorker(hear, () => end(null), device);
    const timer = setTimeout(() => end(null), patience);
    try {
      say(worker, { kind: "try", kit, threads });
    } catch {
      end(null); // the run may be sent all the same
    }
  });
}

interface Waiting {
  resolve: (predictions: PhotoPrediction[]) => void;
  reject: (error: UserError) => void;
}

/** Predictions by a worker that stays until it is closed. */
export class Predictor {
  /** Bytes of the runtime's heap at the last prediction. */
  heapBytes = 0;
  private readonly worker: Worker;
  private readonly waiting = new Map<number, Waiting>();
  private failed: UserError | null = null;
  private closed = false;
  private next = 0;

  /** Args: called once if it fails, after which it predicts nothing more. */
  constructor(
    model: ModelJob,
    private readonly onFail: () => void = () => undefined,
  ) {
    this.worker = startWorker(
      (message) => this.hear(message),
      (message) => this.fail(message),
    );
    try {
      say(this.worker, { kind: "open", model });
    } catch (error) {
      this.worker.terminate(); // nothing else would end it
      throw error;
    }
  }

  /** Predictions in order, none if it is closed first; frames of the camera are taken over. */
  predict(photos: Picture[]): Promise<PhotoPrediction[]> {
    if (this.closed) return Promise.resolve([]);
    if (this.failed) return Promise.reject(this.failed);
    const id = this.next++;
    const frames = photos.filter((photo) => !(photo instanceof Blob));
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      say(this.worker, { kind: "predict", id, photos }, frames);
    });
  }

  close(): void {
    this.closed = true;
    this.worker.terminate();
    for (const { resolve } of this.waiting.values()) resolve([]);
    this.waiting.clear();
  }

  private hear(message: FromWorker): void {
    if (message.kind === "error") this.fail(message.message);
    if (message.kind !== "predictions") return;
    this.heapBytes = message.heapBytes;
    this.waiting.get(message.id)?.resolve(message.predictions);
    this.waiting.delete(message.id);
  }

  private fail(message: string): void {
    if (this.failed) return;
    this.failed = new UserError(message);
    this.worker.terminate();
    for (const { reject } of this.waiting.values()) reject(this.failed);
    this.waiting.clear();
    this.onFail();
  }
}

function startWorker(
  hear: (message: FromWorker) => void,
  fail: (message: string) => void,
  device: Device = "wasm",
): Worker {
  const worker = new Worker(new URL(WORKERS[device], import.meta.url), { type: "module" });
  worker.onmessage = ({ data }: MessageEvent<FromWorker>) => hear(data);
  worker.onerror = (event) => {
    event.preventDefault();
    fail("The worker that computes has ended; load the page again.");
  };
  worker.onmessageerror = () => fail(UNREAD);
  return worker;
}

function say(worker: Worker, message: ToWorker, transfer: Transferable[] = []): void {
  worker.postMessage(message, transfer);
}
