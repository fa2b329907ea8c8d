/** The training loop: steps, validation after each epoch, and stopping; see device/train/loop.py. */
import { type Checkpoint, type Counters, type Score, type State, UserError } from "../contract";
import { rateFactors } from "./defaults";
import { copyState, Engine } from "./engine";
import type { Batch, Loader, TrainingLoader } from "./loader";
import { Pace, RunLog } from "./log";
import { isBetter, Metric, score } from "./metric";
import { gradientNorm, Optimizer } from "./optimizer";
import { Purpose, Random } from "./random";
import { type Run, Stopped } from "./run";
import { learningRate } from "./schedule";
import { isRefitted, refit, type Start, write } from "./start";
import { temper } from "./temper";

const CHECKPOINT_SECONDS = 20;

/** The score, and that by which epochs are compared: rare classes count as in training. */
interface Validated {
  score: Score | null;
  judged: Score | null;
}

/** A step after which nothing can be learned: the same steps would lead there again. */
class Diverged extends UserError {}

export class Loop {
  readonly counters: Counters;
  readonly log: RunLog;
  readonly engine: Engine;
  /** Best parameters and running statistics so far. */
  best: State;
  /** Score after the last step. */
  last: Score | null = null;
  private readonly optimizer: Optimizer;
  private readonly training: TrainingLoader;
  private readonly validation: Loader;
  private readonly pace: Pace;
  private savedAt = performance.now();

  /** From the values of a new run, or from a checkpoint. */
  constructor(
    private readonly run: Run,
    from: Start | Checkpoint,
  ) {
    const { options, settings } = run;
    const isNew = "values" in from;
    this.counters = isNew ? newCounters(from) : structuredClone(from.counters);
    const values = isNew ? this.withOffsets(from.values, 1) : from.state;
    this.engine = new Engine(options.kit, values, options.classes.length);
    this.best = copyState(isNew ? from.values : from.best);
    const lines = isNew ? [] : [...from.log];
    this.log = new RunLog(lines, this.counters.elapsed, run.now, options.heap);
    this.pace = new Pace(run.now);
    this.optimizer = new Optimizer(settings.optimizer, this.engine.parameters, {
      momentum: settings.momentum ?? 0.9,
      weightDecay: settings.weight_decay,
      rates: rateFactors(settings, run.manifest.parameters),
    });
    if (!isNew) this.optimizer.load(from.optimizer);
    this.training = run.training(this.engine);
    this.validation = run.validation(this.engine);
  }

  /**
   * Trains until the last step, until validation has not improved for the patience, until the user
   * stops the run, or until a loss is not finite. It then has the best values so far. Throws Stopped
   * if there are none yet.
   */
  async toTheEnd(): Promise<void> {
    if (!this.counters.started) await this.begin();
    try {
      await this.train();
    } catch (error) {
      if (error instanceof Diverged) {
        this.run.options.emit({ kind: "diverged", message: error.message });
      } else if (!(error instanceof Stopped)) throw error;
      // Without validation, the last values are the best.
      else if (!this.counters.judged) this.keepBest(null, null);
      this.finish("stopped", null);
    }
  }

  private async train(): Promise<void> {
    while (!this.counters.finished) {
      this.run.options.emit({ kind: "phase", phase: "training" });
      await this.trainEpoch();
      this.run.options.emit({ kind: "phase", phase: "validating" });
      await this.endEpoch(await this.validate());
    }
  }

  /** Keeps the values before the first step, so that training never ends below them. */
  private async begin(): Promise<void> {
    this.run.options.emit({ kind: "phase", phase: "validating" });
    const { score: found, judged } = await this.validate();
    const { counters } = this;
    Object.assign(counters, { start: found, best: found, judged, started: true });
    const { engine, run, training } = this;
    const factor = run.steps ? await temper(run, engine, training, counters.head) : 1;
    this.log.start(counters, factor);
    this.emitEpoch(0, null, found, true);
    if (!this.run.steps) this.finish("steps", found);
    else this.save();
  }

  private async trainEpoch(): Promise<void> {
    const { counters } = this;
    this.pace.restart();
    for await (const batch of this.training.epoch(counters.epoch, counters.batch)) {
      await this.step(batch);
      await this.goOn();
      const wait = this.run.options.checkpointSeconds ?? CHECKPOINT_SECONDS;
      if (performance.now() - this.savedAt >= 1000 * wait) this.save();
    }
  }

  private async step(batch: Batch): Promise<void> {
    const { counters, run } = this;
    // Dropout masks depend only on the number of the step: a resumed run draws the same ones.
    const random = new Random(run.settings.seed, Purpose.DROPOUT, counters.step);
    const { loss, correct, values } = await this.engine.gradients(
      batch.start,
      batch.labels,
      random,
    );
    this.requireFinite(loss, "the loss");
    const norm = gradientNorm(values.values());
    this.requireFinite(norm, "a gradient");
    const { lr, warmup } = run.settings;
    const rate = learningRate(lr, counters.step, run.steps, warmup);
    this.optimizer.step(values, rate);
    counters.step += 1;
    counters.batch += 1;
    counters.lossSum += loss;
    counters.correct += correct;
    const images = batch.labels.length;
    const seconds = this.pace.tick();
    this.log.step(counters, {
      loss,
      accuracy: correct / images,
      lr: rate,
      gradient_norm: norm,
      images_per_second: Math.round((10 * images) / this.pace.seconds) / 10,
      seconds: Math.round(1e6 * seconds) / 1e6,
    });
    const { step } = counters;
    run.options.emit({ kind: "step", step, steps: run.steps, loss, correct, images });
    run.progress(step, run.steps, this.pace.seconds, images);
  }

  private async validate(goOn = () => this.goOn()): Promise<Validated> {
    if (!this.run.validate.length) return { score: null, judged: null };
    const { offsets, task } = this.run;
    const plain = new Metric(task);
    const weights = offsets && Array.from(offsets, (offset) => Math.exp(-offset));
    const weighted = weights && new Metric(task, weights);
    for await (const batch of this.validation.epoch(0)) {
      const logits = await this.engine.logits(batch.start);
      if (offsets) logits.forEach((value, i) => (logits[i] = value - offsets[i % offsets.length]!));
      plain.update(logits, batch.labels);
      weighted?.update(logits, batch.labels);
      await goOn();
    }
    if (!plain.images) return { score: null, judged: null };
    this.requireFinite(plain.score.loss, "the validation loss");
    return { score: plain.score, judged: (weighted ?? plain).score };
  }

  private async endEpoch({ score: found, judged }: Validated): Promise<void> {
    const { counters, run } = this;
    const better = improves(judged, counters.judged);
    if (better) this.keepBest(found, judged);
    // Steps may first lose what the start has, so that patience only compares epochs.
    if (improves(judged, counters.trained)) {
      counters.trained = judged;
      counters.stale = 0;
    } else counters.stale += 1;
    const images = counters.batch * run.manifest.batch;
    const training = score(counters.correct / images, counters.lossSum / counters.batch);
    this.log.epoch(counters, training, found, better);
    this.emitEpoch(counters.epoch + 1, training, found, better);
    Object.assign(counters, { epoch: counters.epoch + 1, batch: 0, lossSum: 0, correct: 0 });
    const reason = this.reasonToFinish();
    if (reason) this.finish(reason, (await this.refitted()) ?? found);
  }

  /** Computes the classifier again for the trained features; its score if it is the best. */
  private async refitted(): Promise<Score | null> {
    const { counters, engine, run } = this;
    if (!isRefitted(run) || !counters.judged) return null;
    run.options.emit({ kind: "phase", phase: "head" });
    const head = await refit(run, engine);
    if (!head) return null;
    const trained = engine.copy();
    const values = engine.copy();
    write(values, run.manifest.task.head, head);
    engine.load(this.withOffsets(values, 1));
    // Nothing is saved meanwhile: a resumed run repeats this with its last epoch.
    const { score: found, judged } = await this.validate(() => run.goOn());
    const better = judged !== null && isBetter(judged, counters.judged);
    if (better) {
      counters.refitted = head.name;
      this.keepBest(found, judged);
    } else engine.load(trained);
    this.log.refit(counters, head, found, better);
    return better ? found : null;
  }

  private keepBest(found: Score | null, judged: Score | null): void {
    const { counters } = this;
    Object.assign(counters, { best: found, judged, bestStep: counters.step });
    this.best = this.withOffsets(this.engine.copy(), -1);
  }

  private finish(reason: NonNullable<Counters["finished"]>, found: Score | null): void {
    this.counters.finished = reason;
    this.last = found;
    this.log.end(this.counters);
  }

  private reasonToFinish(): "steps" | "patience" | null {
    const { counters, run } = this;
    if (counters.step >= run.steps) return "steps";
    const { patience } = run.settings;
    return patience && counters.stale >= patience ? "patience" : null;
  }

  private goOn(): Promise<void> {
    return this.run.goOn(() => {
      if (this.counters.started) this.save();
    });
  }

  private save(): void {
    const { options, settings } = this.run;
    this.counters.elapsed = this.log.elapsed;
    this.savedAt = performance.now();
    options.emit({
      kind: "checkpoint",
      state: {
        kitHash: options.kit.hash,
        classes: options.classes,
        settings,
        photos: options.photos,
        counters: this.counters,
        state: this.engine.state,
        optimizer: this.optimizer.state(),
        best: this.best,
        log: this.log.lines,
      },
    });
  }

  private emitEpoch(
    epoch: number,
    training: Score | null,
    validation: Score | null,
    best: boolean,
  ): void {
    this.run.options.emit({
      kind: "epoch",
      epoch,
      epochs: this.run.settings.epochs,
      trainingLoss: training?.loss ?? null,
      trainingAccuracy: training?.value ?? null,
      validationLoss: validation?.loss ?? null,
      validationAccuracy: validation?.value ?? null,
      best,
      usable: epoch > 0 || this.counters.head !== "random",
    });
  }

  /** Values to train with (sign 1) from those of a network, or back (-1). */
  private withOffsets(values: State, sign: 1 | -1): State {
    const { offsets, biasName } = this.run;
    if (!offsets) return values;
    const bias = values.get(biasName)!;
    const data = bias.data.map((value, c) => value + sign * offsets[c]!);
    return new Map(values).set(biasName, { ...bias, data });
  }

  private requireFinite(value: number, what: string): void {
    if (Number.isFinite(value)) return;
    const { lr } = this.run.settings;
    throw new Diverged(
      `In step ${this.counters.step + 1}, ${what} is not finite: start again with a learning rate lower than ${lr.toPrecision(2)}. The best values until then are kept.`,
    );
  }
}

function improves(judged: Score | null, best: Score | null): boolean {
  return !judged || !best || isBetter(judged, best);
}

function newCounters(start: Start): Counters {
  return {
    step: 0,
    epoch: 0,
    batch: 0,
    lossSum: 0,
    correct: 0,
    started: false,
    finished: null,
    start: null,
    best: null,
    bestStep: 0,
    judged: null,
    refitted: null,
    trained: null,
    stale: 0,
    head: start.head,
    headImages: start.images,
    estimate: start.estimate,
    elapsed: 0,
  };
}
