/** The first part: classes as columns, and what can be dropped onto the page. */
import { type TaskName, UserError } from "../../contract";
import type { ClassRecord } from "../../storage/schema";
import { announce, button, filePicker, h, labeled, setText } from "../dom";
import { attempt, attempting, clear, note } from "../messages";
import { NONE, type Project } from "../project";
import { withSkipped } from "../skipped";
import { texts } from "../texts";
import { Column, ownersOf } from "./column";
import { importInto, importLabeled, type Outcome, type Watch } from "./importing";
import type { Recorder } from "./recorder";
import { type Given, ofDrop, ofFiles, ofPaste, sorted, type Source } from "./sources";

/** From how many times as many photos on the balance is worth a word. */
const UNEVEN = 2;
const TASKS: TaskName[] = ["classification", "attributes"];

type ImportPhotos = (photos: Source[], watch: Watch) => Promise<Outcome>;

export class CollectView {
  readonly element: HTMLElement;
  private readonly title = h("h2", { id: "collect-title", tabIndex: -1 }, texts.collectTitle);
  private readonly columns = h("div", { class: "columns" });
  private readonly summary = h("p", { class: "summary" });
  private readonly progress = h("div", { class: "importing", hidden: true });
  private readonly lead = h("p", { class: "lead" });
  private readonly dropHere = h("p");
  private readonly task = h(
    "select",
    {},
    ...TASKS.map((value) => h("option", { value }, texts.taskNames[value])),
  );
  private readonly add = button(
    "",
    "",
    attempting(() => this.addClass()),
  );
  private readonly next: HTMLButtonElement;
  private readonly shown = new Map<number, Column>();
  private recorder: Recorder | undefined;
  private last: number | undefined;
  /** What the columns are made for. */
  private drawn: TaskName | undefined;
  private queue: Promise<unknown> = Promise.resolve();
  /** End the imports that go on or wait for their turn. */
  private readonly controls = new Set<AbortController>();

  constructor(
    private readonly project: Project,
    /** What to do with kits, runs and deltas that are dropped here. */
    private readonly others: (given: Given) => Promise<void>,
    toTrain: () => void,
  ) {
    const importing = h(
      "div",
      { class: "card drop" },
      this.dropHere,
      h(
        "div",
        { class: "row" },
        this.importer(texts.importFolder, true),
        this.importer(texts.importFiles, false),
      ),
    );
    this.next = button(texts.toTrain, "primary", toTrain);
    this.element = h(
      "section",
      { "aria-labelledby": "collect-title" },
      this.title,
      this.lead,
      h("div", { class: "task" }, labeled(texts.taskChoice, this.task)),
      importing,
      this.progress,
      this.summary,
      this.columns,
      h("div", { class: "row" }, this.add, this.next),
    );
    this.task.addEventListener("change", () => attempt(() => this.setTask()));
    project.onChange(() => this.draw());
    this.draw();
    document.addEventListener("paste", (event) => this.paste(event));
  }

  get isImporting(): boolean {
    return !this.progress.hidden;
  }

  /** Files dropped anywhere else on the page. */
  drop(data: DataTransfer): void {
    const dropped = ofDrop(data);
    dropped.catch(() => undefined); // reported in its turn
    this.inTurn(async (control) => this.takeLabeled(await sorted(await dropped), control));
  }

  /** The part is left: the camera goes off. */
  leave(): void {
    this.recorder?.close();
  }

  /** Everything is about to be deleted: end what adds photos. */
  async forget(): Promise<void> {
    this.leave();
    for (const control of this.controls) control.abort();
    await this.queue;
  }

  private async setTask(): Promise<void> {
    try {
      if (this.isImporting) throw new UserError(texts.taskWhileImporting);
      if (this.controls.size) throw new UserError(texts.taskWhileReading);
      await this.project.setTask(this.task.value as TaskName);
    } finally {
      this.task.value = this.project.task;
    }
  }

  /** Columns are made for one kind of labels. */
  private begin(task: TaskName): void {
    this.drawn = task;
    this.task.value = task;
    setText(this.lead, texts.collectHelp[task]);
    setText(this.dropHere, texts.dropHere[task]);
    setText(this.add, texts.addClass[task]);
    for (const column of this.shown.values()) {
      column.close();
      column.element.remove();
    }
    this.shown.clear();
  }

  /** The columns: the classes; and of attributes also the photos that have none. */
  private get all(): ClassRecord[] {
    const { classes, isTagged } = this.project;
    return isTagged ? [...classes, { id: NONE, name: texts.noAttribute }] : classes;
  }

  private draw(): void {
    if (this.drawn !== this.project.task) this.begin(this.project.task);
    const classes = this.all;
    const most = Math.max(0, ...classes.map(({ id }) => this.project.of(id).length));
    for (const [id, column] of this.shown) {
      if (classes.some((each) => each.id === id)) continue;
      column.close();
      if (column.element.contains(document.activeElement)) this.add.focus();
      column.element.remove();
      this.shown.delete(id);
    }
    for (const each of classes) {
      let column = this.shown.get(each.id);
      if (!column) {
        column = new Column(each.id, this.project, {
          add: (owner, sources) => this.addTo(owner, sources),
          opened: (recorder) => this.onlyOne(recorder),
        });
        this.columns.insertBefore(column.element, this.shown.get(NONE)?.element ?? null);
        this.shown.set(each.id, column);
        column.element.addEventListener("focusin", () => (this.last = each.id));
        column.element.addEventListener("pointerenter", () => (this.last = each.id));
      }
      column.show(each, most);
    }
    setText(this.summary, this.balance());
    this.next.hidden = !this.project.canTrain;
  }

  private balance(): string {
    const { classes, count } = this.project;
    if (!count) return "";
    const sizes = classes.map(({ id, name }) => ({ name, count: this.project.of(id).length }));
    const filled = sizes.filter((each) => each.count).sort((a, b) => a.count - b.count);
    const said = `${texts.summary[this.project.task](count, filled.length)}.`;
    if (filled.length < 2 || this.project.isTagged) return said;
    const [few, many] = [filled[0]!, filled.at(-1)!];
    const times = many.count / few.count;
    return `${said} ${times >= UNEVEN ? texts.uneven(few.name, many.name, times) : texts.balanced}`;
  }

  private async addClass(): Promise<void> {
    const { id } = await this.project.addClass();
    this.shown.get(id)!.element.querySelector("input")!.focus();
  }

  private onlyOne(recorder: Recorder): void {
    this.recorder?.close();
    this.recorder = recorder;
  }

  private importer(text: string, folder: boolean): HTMLElement {
    return filePicker(text, "", { multiple: true, webkitdirectory: folder }, (files) =>
      this.inTurn(async (control) => this.takeLabeled(await sorted(ofFiles(files)), control)),
    );
  }

  private paste(event: ClipboardEvent): void {
    if (this.element.hidden || event.target instanceof HTMLInputElement) return;
    const sources = event.clipboardData ? ofPaste(event.clipboardData) : [];
    const owner = this.all.find(({ id }) => id === this.last) ?? this.all[0];
    if (sources.length && owner) this.addTo(owner.id, Promise.resolve(sources));
  }

  private addTo(owner: number, sources: Promise<Source[]>): void {
    this.inTurn(async (control) => {
      const given = await sorted(await sources);
      await this.take(given, control, (...given) =>
        importInto(this.project, ownersOf(owner), ...given),
      );
    });
  }

  private takeLabeled(given: Given, control: AbortController): Promise<void> {
    return this.take(given, control, (...given) => importLabeled(this.project, ...given));
  }

  /** Open kits, runs and deltas, and import the photos that were given with them. */
  private async take(
    given: Given,
    control: AbortController,
    importPhotos: ImportPhotos,
  ): Promise<void> {
    if (control.signal.aborted) return;
    const { photos, ours, kits, runs, tensors } = given;
    const hasOthers = kits.length + runs.length + tensors.length > 0;
    try {
      if (hasOthers) await this.others(given);
    } finally {
      if (photos.length || !hasOthers) {
        await this.watched(control, async (watch) => {
          const isOurs = ours.length > 0 && !photos.length;
          const outcome = isOurs ? { added: 0, skipped: [] } : await importPhotos(photos, watch);
          outcome.skipped.push(...ours.map((name) => ({ name, reason: texts.ours })));
          return outcome;
        });
      }
    }
  }

  /** One import after the other. */
  private inTurn(action: (control: AbortController) => Promise<void>): void {
    clear();
    const control = new AbortController();
    this.controls.add(control);
    const done = this.queue.then(() => (control.signal.aborted ? undefined : action(control)));
    this.queue = done.catch(() => undefined).finally(() => this.controls.delete(control));
    attempt(() => done);
  }

  private async watched(
    control: AbortController,
    action: (watch: Watch) => Promise<Outcome>,
  ): Promise<void> {
    const bar = h("progress", { max: 1, value: 0, "aria-label": texts.importing(0, 0, 0) });
    const text = h("span", {});
    const cancel = button(texts.cancel, "plain", () => control.abort());
    this.progress.replaceChildren(bar, text, cancel);
    this.progress.hidden = false;
    const began = performance.now();
    const progress = (done: number, total: number, left: number) => {
      bar.max = total;
      bar.value = done;
      bar.setAttribute("aria-label", texts.importing(done, total, left));
      if (performance.now() - began > 500) setText(text, texts.importing(done, total, left));
    };
    try {
      report(await action({ signal: control.signal, progress }));
    } finally {
      if (document.activeElement === cancel) this.title.focus();
      this.progress.hidden = true;
    }
  }
}

function report({ added, skipped }: Outcome): void {
  const said = texts.imported(added, skipped.length);
  if (skipped.length) note(withSkipped(said, skipped));
  else announce(said);
}
