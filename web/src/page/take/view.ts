/** The fourth part: files to take along, files to open, and forgetting everything. */
import type { ModelRecord } from "../../storage/schema";
import { usedBytes } from "../../storage/store";
import { announce, button, filePicker, h, setText } from "../dom";
import type { Catalog } from "../kits";
import { attempt, attempting, note } from "../messages";
import type { Project } from "../project";
import { texts } from "../texts";
import { Card } from "./card";
import { deltaFile, modelFile, openDelta, openModel, runFile } from "./files";
import { photosFile } from "./photos";

export interface TakeActions {
  /** Once the network that is kept is shown. */
  loaded(): Promise<unknown>;
  opened(model: ModelRecord): Promise<void>;
  forget(): Promise<void>;
}

export class TakeView {
  readonly element: HTMLElement;
  /** Made once: a change of the photos leaves a file alone that is being written. */
  private readonly files = {
    run: new Card(texts.runZip, "run.zip", () => this.runFile(this.model!)),
    delta: new Card(texts.delta, "delta.safetensors", () => deltaFile(this.model!, this.catalog)),
    onnx: new Card(texts.onnx, "model.onnx", () => modelFile(this.model!, this.catalog)),
    photos: new Card(texts.photosZip, "photos.zip", () =>
      photosFile(this.project, this.model?.run?.photos),
    ),
  };
  private readonly nothing = h("p", {}, texts.nothingToTake);
  private readonly used = h("p", {});
  private model: ModelRecord | undefined;
  /** The one whose run was downloaded, in this tab. */
  private taken: ModelRecord | undefined;

  constructor(
    private readonly project: Project,
    private readonly catalog: Catalog,
    private readonly actions: TakeActions,
  ) {
    this.element = h(
      "section",
      { "aria-labelledby": "take-title" },
      h("h2", { id: "take-title", tabIndex: -1 }, texts.takeTitle),
      h("p", { class: "lead" }, texts.takeHelp),
      h(
        "div",
        { class: "takes" },
        ...Object.values(this.files).map(({ element }) => element),
        this.nothing,
      ),
      this.opener(),
      this.forgetting(),
      h("a", { class: "muted", href: "licenses.txt" }, texts.licenses),
    );
    project.onChange(() => this.draw());
    this.draw();
  }

  show(model: ModelRecord | undefined): void {
    this.model = model;
    this.draw();
  }

  /** The part is opened: say how much is kept. */
  enter(): void {
    attempt(async () => setText(this.used, texts.forgetHelp(await usedBytes())));
  }

  /** Open a run of the command line, or a delta of one of the kits. */
  async open(file: File): Promise<void> {
    await this.actions.loaded(); // the file may take its place
    const isLost = this.model?.run && this.model !== this.taken;
    if (isLost && !confirm(texts.openSure)) return;
    const delta = /\.safetensors$/i.test(file.name);
    const model = await (delta ? openDelta : openModel)(file, this.catalog);
    await this.project.store.saveModel(model);
    await this.actions.opened(model);
    note(texts.opened(file.name));
  }

  private async runFile(model: ModelRecord): Promise<BlobPart[]> {
    const file = await runFile(model, this.catalog);
    this.taken = model;
    return file;
  }

  private draw(): void {
    const { model } = this;
    const { count, task } = this.project;
    const { run, delta, onnx, photos } = this.files;
    run.show(Boolean(model?.run), texts.runHelp);
    delta.show(model !== undefined, texts.deltaHelp);
    onnx.show(model !== undefined, texts.onnxHelp);
    photos.show(count > 0, texts.photosHelp[task]);
    this.nothing.hidden = model !== undefined || count > 0;
  }

  private opener(): HTMLElement {
    const accept = ".zip,.safetensors";
    return h(
      "div",
      { class: "card" },
      h("h3", {}, texts.openTitle),
      h("p", {}, texts.openHelp),
      filePicker(texts.openButton, "", { accept }, ([file]) => {
        if (file) attempt(() => this.open(file));
      }),
    );
  }

  private forgetting(): HTMLElement {
    const forget = async () => {
      if (!confirm(texts.forgetSure)) return;
      await this.actions.forget();
      this.enter();
      announce(texts.forgotten);
    };
    return h(
      "div",
      { class: "card" },
      h("h3", {}, texts.forgetTitle),
      this.used,
      button(texts.forget, "danger", attempting(forget)),
    );
  }
}
