/** A run as the page sees it: what it begins with, what it keeps, and what it ends with. */
import {
  type Checkpoint,
  type Job,
  type PhotoEntry,
  type RunResult,
  type Settings,
  type TrainEvent,
  UserError,
} from "../../contract";
import { Trainer } from "../../engine/trainer";
import { trainedOf } from "../../formats/run";
import type { ClassRecord, ModelRecord } from "../../storage/schema";
import type { Catalog } from "../kits";
import type { Project } from "../project";
import { texts } from "../texts";
import { divide } from "./division";
import { threads } from "./threads";

export type Choices = Omit<Settings, "threads">;

export class Run {
  private trainer: Trainer | undefined;
  private photos: PhotoEntry[] = [];
  /** What a run needs is fetched, and its kit is kept. */
  private preparing: Promise<unknown> = Promise.resolve();
  private saving: Promise<unknown> = Promise.resolve();
  /** Whether the checkpoint that is kept is of this run, and not of one before. */
  private hasCheckpoint = false;

  constructor(
    private readonly project: Project,
    private readonly catalog: Catalog,
    private readonly listen: (event: TrainEvent) => void,
    private readonly done: (model: ModelRecord) => void,
    private readonly failed: (error: unknown) => void,
  ) {}

  get isRunning(): boolean {
    return this.trainer !== undefined;
  }

  /**
   * Begin with the values of the chosen kit, or of a network that was trained with it.
   *
   * @throws UserError if there is nothing to train on.
   */
  async start(choices: Choices, from?: ModelRecord): Promise<void> {
    const { canTrain, filled, kit: chosen, task } = this.project;
    if (!canTrain) throw new UserError(texts.needPhotos[task]);
    const network = from ?? this.catalog.find(chosen);
    const classes = network ? ordered(filled, network.classes) : filled;
    this.hasCheckpoint = false; // that of another run stays until there is one of this
    await this.begin(async () => {
      const kit = await this.catalog.keep(chosen!);
      return {
        kit,
        classes: classes.map(({ name }) => name),
        settings: { ...choices, threads: threads() },
        photos: {
          database: this.project.store.name,
          photos: divide(task, classes, this.project.all()),
        },
        ...(from && { start: { classes: from.classes, parameters: from.parameters } }),
      };
    });
  }

  /** Go on with a run that was interrupted. */
  async resume(checkpoint: Checkpoint): Promise<void> {
    const { epochs, lr, head_lr, optimizer, seed } = checkpoint.settings;
    this.hasCheckpoint = true;
    await this.begin(async () => ({
      kit: await this.catalog.zip(checkpoint.kitHash),
      classes: checkpoint.classes,
      settings: { epochs, lr, headLr: head_lr, optimizer, seed, threads: threads() },
      photos: { database: this.project.store.name, photos: checkpoint.photos },
      resume: checkpoint,
    }));
  }

  pause(): void {
    this.trainer?.pause();
  }

  goOn(): void {
    this.trainer?.resume();
  }

  stop(): void {
    this.trainer?.stop();
  }

  /** What the last run can go on from, once everything of it is saved. */
  async lastCheckpoint(): Promise<Checkpoint | undefined> {
    await this.saving;
    return this.project.store.checkpoint();
  }

  /** End the run at once, with nothing that is kept of it from now on. */
  async abandon(): Promise<void> {
    this.trainer?.abandon();
    this.trainer = undefined;
    await Promise.all([this.preparing, this.saving]);
  }

  /** A run can be stopped or abandoned while what it needs is still being fetched. */
  private async begin(prepare: () => Promise<Job>): Promise<void> {
    const trainer = new Trainer((event) => this.on(event));
    this.trainer = trainer;
    try {
      const preparing = prepare();
      this.preparing = preparing.catch(() => undefined);
      const job = await preparing;
      if (this.trainer !== trainer) return;
      this.photos = job.photos.photos;
      trainer.start(job);
    } catch (error) {
      if (this.trainer !== trainer) return;
      this.trainer = undefined;
      throw error;
    }
  }

  private on(event: TrainEvent): void {
    if (event.kind === "checkpoint") {
      this.hasCheckpoint = true;
      this.save(() => this.project.store.saveCheckpoint(event.state));
    }
    if (event.kind === "error" && event.final && this.hasCheckpoint) this.drop();
    if (event.kind === "done") this.finish(modelOf(event.result, this.photos));
    if (event.kind === "done" || event.kind === "stopped" || event.kind === "error") {
      this.trainer = undefined;
    }
    this.listen(event);
  }

  /** Keep nothing to go on from, as it would only fail again. */
  private drop(): void {
    const { store } = this.project;
    this.save(async () => {
      await store.dropCheckpoint();
      await store.clearFeatures();
    });
  }

  private finish(model: ModelRecord): void {
    this.save(() => this.project.store.finish(model));
    this.done(model);
  }

  /** One change of the storage after the other; of checkpoints, the last one counts. */
  private save(change: () => Promise<void>): void {
    this.saving = this.saving.then(change).catch(this.failed);
  }
}

/** In the order of the network's classes where they are the same: its classifier is for these. */
function ordered(classes: ClassRecord[], names: string[]): ClassRecord[] {
  const own = names.map((name) => classes.find((each) => each.name === name));
  const same = names.length === classes.length && own.every((each) => each !== undefined);
  return same ? own : classes;
}

/** What of a run is used. */
function modelOf(result: RunResult, photos: PhotoEntry[]): ModelRecord {
  const { kitHash, task } = result;
  return { name: texts.thisRun, kitHash, task, ...trainedOf(result), run: { result, photos } };
}
