/** A class: its name, its photos, and the ways to add some. */
import type { ClassRecord } from "../../storage/schema";
import { button, h, setText } from "../dom";
import { attempt, attempting } from "../messages";
import type { Project } from "../project";
import { texts } from "../texts";
import { Grid } from "./grid";
import { Recorder } from "./recorder";
import { ofDrop, ofFiles, type Source } from "./sources";

export interface ColumnActions {
  add(owner: number, sources: Promise<Source[]>): void;
  /** A camera was opened: the one of another class is to be closed. */
  opened(recorder: Recorder): void;
}

export class Column {
  readonly element: HTMLElement;
  private readonly name: HTMLInputElement;
  private readonly count = h("span", { class: "count" });
  private readonly bar = h("div", { class: "share", role: "img" }, h("div", {}));
  private readonly grid: Grid;
  private readonly selection = h("div", { class: "selection", hidden: true });
  private readonly place = h("div", {});
  private recorder: Recorder | undefined;
  private selected = new Set<number>();
  private called = "";

  constructor(
    readonly id: number,
    private readonly project: Project,
    private readonly actions: ColumnActions,
  ) {
    this.name = this.nameField();
    this.grid = new Grid("", {
      thumbnail: (photo) => project.store.thumbnail(photo),
      selected: (ids) => this.showSelection(ids),
      remove: (ids) => attempt(() => project.remove(ids, id)),
    });
    const header = h("header", {}, this.name, this.count);
    const buttons = h(
      "div",
      { class: "row" },
      button(
        texts.camera,
        "",
        attempting(() => this.openCamera()),
      ),
      this.fileButton(),
      button(
        texts.deleteClass,
        "plain end",
        attempting(() => this.remove()),
      ),
    );
    this.element = h(
      "section",
      { class: "card column" },
      header,
      this.bar,
      buttons,
      this.place,
      this.grid.element,
      this.selection,
    );
    this.acceptDrops();
  }

  /** Show the class as it is now; `most` photos are those of the largest class. */
  show({ name }: ClassRecord, most: number): void {
    const photos = this.project.of(this.id);
    if (name !== this.called) {
      this.called = name;
      this.name.value = name;
      this.element.setAttribute("aria-label", texts.classActions(name));
      this.grid.name(name);
    }
    setText(this.count, photos.length ? texts.photos(photos.length) : texts.noPhotos);
    this.bar.setAttribute("aria-label", texts.share(name, photos.length, most));
    (this.bar.firstChild as HTMLElement).style.width =
      `${(100 * photos.length) / Math.max(1, most)}%`;
    this.grid.show(photos);
  }

  close(): void {
    this.recorder?.close();
  }

  private nameField(): HTMLInputElement {
    const field = h("input", { type: "text", "aria-label": texts.className, maxLength: 200 });
    field.addEventListener("change", () =>
      attempt(async () => {
        try {
          await this.project.rename(this.id, field.value);
        } finally {
          field.value = this.called;
        }
      }),
    );
    field.addEventListener("focus", () => field.select());
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter") field.blur();
    });
    return field;
  }

  private fileButton(): HTMLElement {
    const input = h("input", {
      type: "file",
      multiple: true,
      accept: "image/*,.zip",
      hidden: true,
    });
    input.addEventListener("change", () => {
      this.actions.add(this.id, Promise.resolve(ofFiles(input.files ?? [])));
      input.value = "";
    });
    return h(
      "span",
      {},
      input,
      button(texts.files, "", () => input.click()),
    );
  }

  private async openCamera(): Promise<void> {
    if (this.recorder) return;
    const recorder = new Recorder(this.project, this.id, () => (this.recorder = undefined));
    this.recorder = recorder;
    this.actions.opened(recorder);
    this.place.append(recorder.element);
    try {
      await recorder.open();
    } catch (error) {
      recorder.close();
      throw error;
    }
  }

  private async remove(): Promise<void> {
    const count = this.project.of(this.id).length;
    if (count && !confirm(texts.deleteClassSure(this.called, count))) return;
    this.close();
    await this.project.removeClass(this.id);
  }

  private acceptDrops(): void {
    const { element } = this;
    element.addEventListener("dragover", (event) => {
      event.preventDefault();
      element.classList.add("dropping");
    });
    for (const name of ["dragleave", "drop"] as const) {
      element.addEventListener(name, () => element.classList.remove("dropping"));
    }
    element.addEventListener("drop", (event) => {
      event.preventDefault();
      event.stopPropagation();
      if (event.dataTransfer) this.actions.add(this.id, ofDrop(event.dataTransfer));
    });
  }

  private showSelection(ids: Set<number>): void {
    this.selected = ids;
    this.selection.hidden = !ids.size;
    if (!ids.size) return;
    const others = this.project.classes.filter((each) => each.id !== this.id);
    const choice = h(
      "select",
      { "aria-label": texts.moveTo },
      h("option", { value: "" }, texts.moveTo),
      ...others.map((each) => h("option", { value: String(each.id) }, each.name)),
    );
    choice.addEventListener("change", () =>
      attempt(() => this.project.move(this.selected, this.id, Number(choice.value))),
    );
    this.selection.replaceChildren(
      h("span", {}, texts.selected(ids.size)),
      button(texts.selectAll, "plain", () => this.grid.selectAll(true)),
      button(texts.selectNone, "plain", () => this.grid.selectAll(false)),
      choice,
      button(
        texts.deletePhotos,
        "danger",
        attempting(() => this.project.remove(this.selected, this.id)),
      ),
    );
  }
}
