/** A class: its name, its photos, and the ways to add some. */
import type { ClassRecord } from "../../storage/schema";
import { button, filePicker, fill, h, setText } from "../dom";
import { attempt, attempting, clear } from "../messages";
import { NONE, type Project } from "../project";
import { texts } from "../texts";
import { Grid } from "./grid";
import { Recorder } from "./recorder";
import { ofDrop, ofFiles, type Source } from "./sources";

/** So many photos are deleted without a question. */
const FEW = 3;

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
  private readonly selectionCount = h("span", {});
  private readonly move = h("span", { class: "move" });
  private readonly moveTo = h("select");
  private readonly place = h("div", {});
  private readonly cameraButton = button(
    texts.camera,
    "",
    attempting(() => this.toggleCamera()),
  );
  private recorder: Recorder | undefined;
  private selected = new Set<number>();
  private called = "";
  private listed: string | undefined;

  constructor(
    readonly id: number,
    private readonly project: Project,
    private readonly actions: ColumnActions,
  ) {
    this.name = this.nameField();
    this.grid = new Grid(id, {
      thumbnail: (photo) => project.store.thumbnail(photo),
      selected: (ids) => this.showSelection(ids),
      remove: (ids) => attempt(() => this.removePhotos(ids)),
    });
    const isNone = id === NONE;
    const header = h("header", {}, isNone ? h("h3", {}, texts.noAttribute) : this.name, this.count);
    const buttons = h(
      "div",
      { class: "row" },
      this.cameraButton,
      this.fileButton(),
      isNone
        ? null
        : button(
            texts.deleteClass[project.task],
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
    this.fillSelection();
    this.acceptDrops();
  }

  /** Show the class as it is now; `most` photos are those of the largest class. */
  show({ name }: ClassRecord, most: number): void {
    const photos = this.project.of(this.id);
    if (name !== this.called) {
      this.called = name;
      this.name.value = name;
      this.element.setAttribute("aria-label", texts.classActions[this.project.task](name));
      this.grid.name(name);
    }
    setText(this.count, photos.length ? texts.photos(photos.length) : texts.noPhotos);
    this.bar.setAttribute("aria-label", texts.share[this.project.task](name, photos.length, most));
    (this.bar.firstChild as HTMLElement).style.width =
      `${(100 * photos.length) / Math.max(1, most)}%`;
    if (!photos.length) this.leaveGrid();
    this.grid.show(photos);
    if (this.selected.size) this.listOthers();
  }

  close(): void {
    this.recorder?.close();
  }

  /** The grid and the selection are about to be hidden: the focus goes on to what adds photos. */
  private leaveGrid(): void {
    const { activeElement } = document;
    if (this.grid.element === activeElement || this.selection.contains(activeElement)) {
      this.cameraButton.focus();
    }
  }

  private nameField(): HTMLInputElement {
    const label = texts.className[this.project.task];
    const field = h("input", { type: "text", "aria-label": label, maxLength: 200 });
    field.addEventListener("change", () =>
      attempt(async () => {
        clear();
        try {
          await this.project.rename(this.id, field.value);
        } finally {
          field.value = this.called;
        }
      }),
    );
    field.addEventListener("focus", () => field.select());
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.isComposing) field.blur();
    });
    return field;
  }

  private fileButton(): HTMLElement {
    const props = { multiple: true, accept: "image/*,.zip" };
    return filePicker(texts.files, "", props, (files) =>
      this.actions.add(this.id, Promise.resolve(ofFiles(files))),
    );
  }

  private async toggleCamera(): Promise<void> {
    if (this.recorder) return this.close();
    clear(); // it would cover the picture on a small screen
    const recorder = new Recorder(this.project, ownersOf(this.id), (focused) => {
      this.recorder = undefined;
      if (focused) this.cameraButton.focus();
      this.cameraButton.setAttribute("aria-expanded", "false");
    });
    this.recorder = recorder;
    this.cameraButton.setAttribute("aria-expanded", "true");
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
    const sure = texts.deleteClassSure[this.project.task];
    if (count && !confirm(sure(this.called, count))) return;
    this.close();
    await this.project.removeClass(this.id);
  }

  private async removePhotos(ids: Set<number>): Promise<void> {
    if (ids.size > FEW && !confirm(texts.deletePhotosSure(ids.size))) return;
    await this.project.remove(ids);
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
    const focused = this.selection.contains(document.activeElement);
    this.selection.hidden = !ids.size;
    if (focused && !ids.size) this.grid.element.focus();
    if (!ids.size) return;
    setText(this.selectionCount, texts.selected(ids.size));
    this.listOthers();
  }

  /** The classes that the selection can be moved to. */
  private listOthers(): void {
    const others = this.project.classes.filter((each) => each.id !== this.id);
    const listed = others.map(({ id, name }) => `${id} ${name}`).join("\n");
    if (listed === this.listed) return; // an open list stays open while photos are added
    this.listed = listed;
    const chosen = this.moveTo.value;
    fill(
      this.moveTo,
      ...others.map(({ id, name }) => {
        const value = String(id);
        return h("option", { value, selected: value === chosen }, name);
      }),
    );
    this.move.hidden = !others.length;
  }

  private fillSelection(): void {
    const { project, id } = this;
    const act = (text: string, kind: string, action: (ids: Set<number>) => Promise<void>) =>
      button(
        text,
        kind,
        attempting(() => action(this.selected)),
      );
    const { isTagged } = project;
    const other = () => Number(this.moveTo.value);
    this.moveTo.setAttribute("aria-label", isTagged ? texts.alsoHas : texts.moveTo);
    this.move.append(
      this.moveTo,
      isTagged
        ? act(texts.giveAttribute, "", (ids) => project.tag(ids, other(), true))
        : act(texts.move, "", (ids) => project.move(ids, other())),
    );
    const takes = isTagged && id !== NONE;
    fill(
      this.selection,
      this.selectionCount,
      button(texts.selectAll, "plain", () => this.grid.selectAll(true)),
      button(texts.selectNone, "plain", () => this.grid.selectAll(false)),
      this.move,
      takes ? act(texts.takeAttribute, "", (ids) => project.tag(ids, id, false)) : null,
      act(texts.deletePhotos, "danger", (ids) => this.removePhotos(ids)),
    );
  }
}

/** What a photo has that is added to this column. */
export function ownersOf(column: number): number[] {
  return column === NONE ? [] : [column];
}
