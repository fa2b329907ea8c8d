/** The second part: choose a kit, train, and watch. */
import type { Checkpoint, OptimizerName, RunResult, TrainEvent } from "../../contract";
import { scored } from "../../formats/run";
import type { ModelRecord } from "../../storage/schema";
import { announce, button, fill, h, labeled, setText } from "../dom";
import type { Catalog } from "../kits";
import { attempt, attempting, clear, fail, note, sentence } from "../messages";
import type { Project } from "../project";
import { texts } from "../texts";
import { Awake } from "./awake";
import { changesSince } from "./changes";
import { KitChoice } from "./choice";
import { Curves } from "./curves";
import { type Choices, Run } from "./run";
import { whyOneThread } from "./threads";

const OPTIMIZERS: OptimizerName[] = ["adam", "adamw", "sgd"];

export interface TrainActions {
  done(model: ModelRecord): void;
  /** Whether photos are still to come. */
  isImporting(): boolean;
  toCollect(): void;
  toUse(): void;
}

/** A run that is ending heeds nothing more. */
type State = "ready" | "running" | "paused" | "ending" | "done";

export class TrainView {
  readonly element: HTMLElement;
  readonly kits: KitChoice;
  private readonly run: Run;
  private readonly curves = new Curves();
  /** Made once: a change of the photos takes no focus and no click from them. */
  private readonly buttons = {
    pause: button(texts.pause, "", () => this.run.pause()),
    resume: button(texts.resume, "primary", () => this.goOn()),
    stop: button(texts.stop, "plain", () => this.stop()),
    toCollect: button(texts.toCollect, "", () => this.actions.toCollect()),
    start: button(
      texts.start,
      "primary large",
      attempting(() => this.start()),
    ),
  };
  private readonly need = h("p", {});
  private readonly controls = h(
    "div",
    { class: "row controls" },
    this.need,
    ...Object.values(this.buttons),
  );
  private readonly lead = h("p", { class: "lead" }, texts.trainHelp);
  private readonly notice = h("div", { class: "notice", hidden: true });
  /** The run that can go on, while the notice offers it, and what has changed since it began. */
  private offered: Checkpoint | undefined;
  private readonly since = h("p", {});
  /** Shown from when the classifier is computed, which is long before the run ends. */
  private readonly usable = h("div", { class: "notice", hidden: true });
  private readonly usableText = h("p", {});
  /** The best accuracy of the run so far. */
  private best: number | null = null;
  /** Whether the run was stopped to be used at once. */
  private isAwaited = false;
  private readonly result = h("div", { class: "notice done", hidden: true, tabIndex: -1 });
  private readonly form: ReturnType<typeof settingsForm>;
  private state: State = "ready";
  private readonly awake = new Awake();
  /** What is in use, which a run can begin with. */
  private model: ModelRecord | undefined;
  private readonly further = h("input", { type: "checkbox" });
  private readonly furtherText = h("span", {});
  private readonly furtherRow = h(
    "label",
    { class: "further", hidden: true },
    this.further,
    this.furtherText,
  );

  constructor(
    private readonly project: Project,
    catalog: Catalog,
    private readonly actions: TrainActions,
  ) {
    const failed = (error: unknown) => {
      fail(error);
      attempt(() => this.offerLast());
    };
    this.run = new Run(project, catalog, (event) => this.on(event), actions.done, failed);
    this.kits = new KitChoice(project, catalog);
    const useNow = () => {
      this.isAwaited = true;
      this.stop();
    };
    fill(this.usable, this.usableText, button(texts.useNow, "", useNow));
    this.form = settingsForm();
    this.element = h(
      "section",
      { "aria-labelledby": "train-title" },
      h("h2", { id: "train-title", tabIndex: -1 }, texts.trainTitle),
      this.lead,
      this.notice,
      this.result,
      this.usable,
      this.curves.element,
      this.kits.element,
      this.furtherRow,
      this.form.element,
      this.controls,
      h("small", { class: "threads" }, whyOneThread()),
    );
    project.onChange(() => {
      this.kits.update();
      this.showChanges();
      this.showControls();
    });
    this.showControls();
  }

  /** What is in use now. */
  show(model: ModelRecord | undefined): void {
    this.model = model;
    this.result.hidden = true; // it is of the one before
    this.curves.element.hidden ||= !this.busy; // and so are they
    this.further.checked = false;
    this.showControls();
  }

  get isRunning(): boolean {
    return this.run.isRunning;
  }

  /** Offer to go on from the checkpoint of a run that has not come to its end, if there is one. */
  async offerLast(): Promise<boolean> {
    const checkpoint = await this.run.lastCheckpoint();
    if (!checkpoint || this.run.isRunning) return false;
    this.offer(checkpoint);
    return true;
  }

  private offer(checkpoint: Checkpoint): void {
    const { epochs } = checkpoint.settings;
    const epoch = Math.min(checkpoint.counters.epoch + 1, epochs);
    const resume = () => {
      clear();
      return this.begin(() => {
        this.curves.restore(checkpoint);
        this.best = checkpoint.counters.best?.value ?? null;
        return this.run.resume(checkpoint);
      });
    };
    const discard = async () => {
      if (!confirm(texts.discardSure)) return;
      this.notice.hidden = true;
      await this.project.store.dropCheckpoint();
      await this.project.store.clearFeatures();
    };
    fill(
      this.notice,
      h("div", {}, h("p", {}, texts.unfinished(epoch, epochs)), this.since),
      button(texts.resume, "primary", attempting(resume)),
      button(texts.discard, "plain", attempting(discard)),
    );
    this.notice.hidden = false;
    this.offered = checkpoint;
    this.showChanges();
  }

  private showChanges(): void {
    if (this.notice.hidden || !this.offered) return;
    setText(this.since, texts.changedSince(changesSince(this.offered, this.project)));
  }

  /** Everything is about to be deleted: end the run, and show none. */
  async forget(): Promise<void> {
    await this.run.abandon();
    for (const part of [this.notice, this.result, this.curves.element]) part.hidden = true;
    this.set("ready");
  }

  private async start(): Promise<void> {
    const choices = this.form.choices();
    if (!choices) return;
    if (this.actions.isImporting() && !confirm(texts.importingSure)) return;
    if (!this.notice.hidden && !confirm(texts.replaceSure)) return;
    clear();
    const empty = this.project.classes.find(({ id }) => !this.project.of(id).length);
    if (empty) note(texts.leftOut(empty.name));
    await this.begin(() => this.run.start(choices, this.from()));
  }

  /** The network to train further, if that is asked for and it is of the chosen kit. */
  private from(): ModelRecord | undefined {
    return this.further.checked && this.isOfKit() ? this.model : undefined;
  }

  private isOfKit(): boolean {
    return this.model !== undefined && this.model.kitHash === this.project.kit;
  }

  private async begin(starting: () => Promise<void>): Promise<void> {
    this.notice.hidden = true;
    this.result.hidden = true;
    this.best = null;
    this.isAwaited = false;
    this.curves.begin();
    this.set("running");
    try {
      await starting();
    } catch (error) {
      this.interrupted();
      this.curves.fail(sentence(error));
      throw error;
    }
  }

  private interrupted(): void {
    this.set("ready");
    attempt(() => this.offerLast());
  }

  private on(event: TrainEvent): void {
    if (this.state === "ending" && this.run.isRunning) return;
    this.curves.on(event);
    if (event.kind === "paused") this.set("paused");
    else if (event.kind === "phase" && event.phase === "result") this.set("ending");
    else if (event.kind === "epoch") this.showUsable(event);
    else if (event.kind === "diverged") note(event.message);
    else if (event.kind === "stopped") this.interrupted();
    else if (event.kind === "error") {
      this.interrupted();
      fail(Object.assign(new Error(event.message), { name: "UserError" }));
    } else if (event.kind === "done") {
      this.set("done");
      this.showResult(event.result);
      if (this.isAwaited) this.actions.toUse();
    }
  }

  private showUsable(event: TrainEvent & { kind: "epoch" }): void {
    const { usable, epoch, epochs, validationAccuracy: accuracy } = event;
    if (!usable || epoch === epochs) return; // the run is about to end
    if (accuracy !== null) this.best = Math.max(this.best ?? 0, accuracy);
    const said = texts.usable[this.project.task](
      this.best === null ? null : texts.percent(this.best),
    );
    setText(this.usableText, said);
    if (this.usable.hidden) announce(said);
    this.usable.hidden = false;
  }

  private showResult(result: RunResult): void {
    const { best } = result.counters;
    const said = best
      ? texts.doneText[result.task](texts.percent(best.value), scored(result), result.seconds) +
        texts.notHeldOut(notHeldOut(result))
      : texts.doneNoVal[result.task](result.seconds);
    fill(
      this.result,
      h("div", {}, h("h3", {}, texts.doneTitle), h("p", {}, said)),
      button(texts.tryIt, "primary", () => this.actions.toUse()),
    );
    this.result.hidden = false;
    this.result.focus();
    announce(`${texts.doneTitle}. ${said}`);
  }

  /** While a run goes on, its controls are above its curves, and there is nothing to choose. */
  private set(state: State): void {
    const { activeElement } = document;
    const own = [this.controls, this.usable].some((each) => each.contains(activeElement));
    const focused = activeElement === document.body || own;
    this.state = state;
    const { busy } = this;
    this.awake.set(busy && state !== "paused");
    this.lead.hidden = busy;
    this.kits.element.hidden = busy;
    this.form.element.hidden = busy;
    if (!busy || state === "ending") this.usable.hidden = true;
    if (busy) this.usable.before(this.controls);
    else this.form.element.after(this.controls);
    this.showControls();
    if (focused && state !== "done") {
      this.controls.querySelector<HTMLElement>("button:not([hidden])")?.focus();
    }
  }

  private get busy(): boolean {
    return this.state !== "ready" && this.state !== "done";
  }

  private showControls(): void {
    const { busy } = this;
    this.furtherRow.hidden = busy || !this.isOfKit();
    if (this.model) setText(this.furtherText, texts.further(this.model.name));
    const { pause, resume, stop, toCollect, start } = this.buttons;
    pause.hidden = this.state !== "running";
    resume.hidden = this.state !== "paused";
    stop.hidden = pause.hidden && resume.hidden;
    const { canTrain, kit, task } = this.project;
    this.need.hidden = toCollect.hidden = busy || canTrain;
    setText(this.need, texts.needPhotos[task]);
    start.hidden = busy || !canTrain || kit === null;
    setText(start, this.state === "done" ? texts.again : texts.start);
  }

  private stop(): void {
    this.curves.stopping();
    this.set("ending");
    this.run.stop(); // which is the end at once of a run that waits for its device
  }

  private goOn(): void {
    this.run.goOn();
    this.curves.goOn();
    this.set("running");
  }
}

/** How many classes have no photo that is held out. */
function notHeldOut({ task, confusion: [confusion = []] }: RunResult): number {
  if (task === "attributes") return 0;
  return confusion.filter((row) => !row.some(Boolean)).length;
}

function settingsForm() {
  const number = (facts: object) =>
    h("input", { type: "number", placeholder: texts.byDefault, ...facts });
  const epochs = number({ min: 0, step: 1 });
  const rate = number({ min: 0, step: "any" });
  const headRate = number({ min: 0, step: "any" });
  const optimizer = h(
    "select",
    {},
    ...OPTIMIZERS.map((name) => h("option", { value: name }, name)),
  );
  const fields = h(
    "fieldset",
    { class: "fields" },
    labeled(texts.epochs, epochs),
    labeled(texts.rate, rate),
    labeled(texts.headRate, headRate),
    labeled(texts.optimizer, optimizer),
  );
  const element = h(
    "details",
    { class: "card" },
    h("summary", {}, texts.settings),
    h("p", {}, texts.settingsHelp),
    fields,
  );
  const value = (field: HTMLInputElement) => (field.value === "" ? undefined : field.valueAsNumber);
  /** Nothing where a field has what cannot be used, which the browser says beside it. */
  const choices = (): Choices | undefined => {
    for (const field of [rate, headRate]) {
      field.setCustomValidity(value(field) === 0 ? texts.rateOfZero : "");
    }
    const wrong = [epochs, rate, headRate].find((field) => !field.validity.valid);
    if (wrong) {
      element.open = true; // or it could not be said
      wrong.reportValidity();
      return undefined;
    }
    const [chosenEpochs, lr, headLr] = [epochs, rate, headRate].map(value);
    return {
      ...(chosenEpochs === undefined ? {} : { epochs: chosenEpochs }),
      ...(lr === undefined ? {} : { lr }),
      ...(headLr === undefined ? {} : { headLr }),
      optimizer: optimizer.value as OptimizerName,
      seed: 0,
    };
  };
  return { element, choices };
}
