/** The third part: photos and the camera, class by class, and what is told wrong. */
import { scored } from "../../formats/run";
import type { ModelRecord } from "../../storage/schema";
import { announce, button, filePicker, fill, h, setText } from "../dom";
import { Camera } from "../collect/camera";
import { checkPhoto, decode } from "../collect/prepare";
import { type Given, ofDrop, ofFiles, ofPaste, sorted, type Source } from "../collect/sources";
import type { Catalog } from "../kits";
import { attempt, attempting, clear, fail, note } from "../messages";
import type { Project } from "../project";
import { reasonOf, type Skipped, withSkipped } from "../skipped";
import { texts } from "../texts";
import { Bars, heading } from "./bars";
import { attributeTable } from "./attributes";
import { confusionOf } from "./confusion";
import { mistakeList } from "./mistakes";
import { type Answer, ModelInUse } from "./model";

/** Photos whose predictions stay on the page. */
const SHOWN = 60;
/** Milliseconds between two looks of the camera, at least. */
const PAUSE = 100;
/** Milliseconds between two words to screen readers. */
const SPOKEN = 3000;

export class UseView {
  readonly element: HTMLElement;
  private readonly body = h("div", { class: "stack" });
  private readonly results = h("ul", { class: "results", "aria-label": texts.results });
  private readonly video = h("video", { "aria-label": texts.cameraPicture, hidden: true });
  private readonly camera = new Camera(this.video, (error) => {
    this.stopCamera();
    fail(error);
  });
  private readonly live = h("div", { class: "live" });
  private readonly view = h("div", { class: "look" }, this.video, this.live);
  private readonly start = button(
    texts.startCamera,
    "primary",
    attempting(() => this.toggleCamera()),
  );
  private readonly other = button(
    texts.otherCamera,
    "plain",
    attempting(() => this.camera.turn()),
    { hidden: true },
  );
  private model: ModelInUse | undefined;
  private spoken = { when: 0, what: "" };

  constructor(
    private readonly project: Project,
    private readonly catalog: Catalog,
    /** What to do with kits, runs and deltas that are dropped here. */
    private readonly others: (given: Given) => Promise<void>,
    private readonly toTrain: () => void,
  ) {
    this.element = h(
      "section",
      { "aria-labelledby": "use-title" },
      h("h2", { id: "use-title", tabIndex: -1 }, texts.useTitle),
      this.body,
    );
    document.addEventListener("paste", (event) => {
      if (this.element.hidden || !event.clipboardData) return;
      this.take(Promise.resolve(ofPaste(event.clipboardData)));
    });
    this.show(undefined);
  }

  /** Use this model from now on. */
  show(record: ModelRecord | undefined): void {
    this.leave();
    this.results.replaceChildren();
    this.model = record && new ModelInUse(record, this.catalog);
    if (!record) {
      fill(this.body, h("p", {}, texts.noModel), button(texts.trainFirst, "", this.toTrain));
      return;
    }
    fill(
      this.body,
      h(
        "p",
        { class: "lead" },
        `${texts.useHelp} ${texts.inUse(record.name, record.task, record.classes)}`,
      ),
      this.inputs(),
      h("small", {}, helpOf(record)),
      this.view,
      this.results,
      ...this.mistakes(record),
    );
  }

  /** The part is opened: so is the model, before there is a photo. */
  enter(): void {
    const { model } = this;
    if (model) attempt(() => model.prepare());
  }

  /** The part is left: the camera goes off, and the worker ends. */
  leave(): void {
    this.stopCamera();
    this.model?.close();
  }

  drop(data: DataTransfer): void {
    this.take(ofDrop(data));
  }

  private inputs(): HTMLElement {
    const props = { multiple: true, accept: "image/*" };
    const choose = filePicker(texts.choosePhotos, "", props, (files) =>
      this.take(Promise.resolve(ofFiles(files))),
    );
    return h(
      "div",
      { class: "card drop" },
      h("p", {}, texts.dropPhotos),
      h("div", { class: "row" }, this.start, this.other, choose),
    );
  }

  private mistakes({ run }: ModelRecord): HTMLElement[] {
    if (!run) return [];
    const { result } = run;
    if (!scored(result)) {
      return [h("p", { class: "muted" }, texts.noConfusion)];
    }
    const results =
      result.task === "attributes"
        ? [h("h3", {}, texts.perAttribute), ...attributeTable(result)]
        : [h("h3", {}, texts.confusion), ...confusionOf(result)];
    return [...results, h("h3", {}, texts.mistakes), mistakeList(result, this.project)];
  }

  private take(sources: Promise<Source[]>): void {
    clear();
    attempt(async () => {
      const given = await sorted(await sources);
      await this.others(given);
      const { photos } = given;
      const more = photos.length - SHOWN;
      const said = more > 0 ? texts.onlyFirst(SHOWN, more) : "";
      if (said && !this.element.hidden) note(said);
      const skipped: Skipped[] = [];
      for (const source of photos.slice(0, SHOWN)) {
        if (this.element.hidden) return; // the part was left
        const name = source.path.split("/").at(-1)!;
        const photo = await opened(source).catch(reasonOf);
        if (typeof photo === "string") skipped.push({ name, reason: photo });
        else await this.look(name, photo);
      }
      if (skipped.length && !this.element.hidden) note(withSkipped(said, skipped));
    });
  }

  private async look(name: string, blob: Blob): Promise<void> {
    const { model } = this;
    if (!model) return;
    const small = await picture(blob);
    if (this.element.hidden || model !== this.model) return; // and would open a worker again
    const bars = new Bars(model.record);
    const file = h("p", { class: "file" }, name);
    const item = h("li", { class: "card" }, small, file, bars.element);
    this.results.prepend(item);
    while (this.results.children.length > SHOWN) this.results.lastChild!.remove();
    try {
      const [answer] = await model.predict([blob]);
      if (!answer) return item.remove(); // the part was left
      bars.show(answer);
      if (model === this.model) this.speak(answer, name);
    } catch (error) {
      item.remove();
      throw error;
    }
  }

  private async toggleCamera(): Promise<void> {
    clear(); // it may be why the camera was not there before
    if (this.camera.isOpen) return this.stopCamera();
    await this.camera.open();
    if (!this.camera.isOpen || !this.model) return; // the part was left meanwhile
    setText(this.start, texts.stopCamera);
    this.video.hidden = this.other.hidden = false;
    await this.watch(this.model);
  }

  /** Predict one frame after the other, until the camera is stopped. */
  private async watch(model: ModelInUse): Promise<void> {
    const bars = new Bars(model.record);
    this.live.replaceChildren(bars.element);
    const goesOn = () => bars.element.isConnected;
    let isFirst = true;
    try {
      while (goesOn()) {
        if (this.camera.hasFrame) {
          const [answer] = await model.predict([this.camera.frame().transferToImageBitmap()]);
          if (answer && goesOn()) {
            bars.show(answer);
            this.speak(answer, "");
            if (isFirst) this.view.scrollIntoView({ block: "nearest" }); // it is low on a phone
            isFirst = false;
          }
        }
        await new Promise((resolve) => setTimeout(resolve, PAUSE));
      }
    } finally {
      if (goesOn()) this.stopCamera();
    }
  }

  private stopCamera(): void {
    this.camera.close();
    this.video.hidden = this.other.hidden = true;
    this.live.replaceChildren();
    setText(this.start, texts.startCamera);
  }

  /** Say what is new, but not in every frame. */
  private speak(answer: Answer, name: string): void {
    const said = heading(this.model!.record, answer);
    const now = performance.now();
    if (!name && (said === this.spoken.what || now - this.spoken.when < SPOKEN)) return;
    this.spoken = { when: now, what: said };
    const [only] = answer.told;
    const isClass = this.model!.record.task === "classification" && only !== undefined;
    const sure = isClass ? texts.percent(answer.probabilities[only]!) : "";
    announce(`${name} ${sure ? texts.result(said, sure) : said}`.trim());
  }
}

/** @throws Error if the file is too large to be decoded, or cannot be read. */
async function opened(source: Source): Promise<Blob> {
  const blob = await source.open();
  await checkPhoto(blob);
  return blob;
}

/** How it is told what a photo is. */
function helpOf({ task, known }: ModelRecord): string {
  if (task === "attributes") return texts.attributesHelp;
  return known ? texts.noneHelp : texts.noneByProbability;
}

/** A small picture of a photo; nothing of a file that is none. */
async function picture(blob: Blob): Promise<HTMLElement | null> {
  const bitmap = await decode(blob).catch(() => null);
  if (!bitmap) return null;
  const factor = 240 / Math.max(bitmap.width, bitmap.height);
  const canvas = h("canvas", {
    width: Math.max(1, Math.round(bitmap.width * factor)),
    height: Math.max(1, Math.round(bitmap.height * factor)),
    "aria-hidden": "true",
  });
  canvas.getContext("2d")!.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
  return canvas;
}
