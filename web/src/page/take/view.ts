/** The fourth part: files to take along, files to open, and forgetting everything. */
import type { ModelRecord } from "../../storage/schema";
import { usedBytes } from "../../storage/store";
import { announce, button, filePicker, fill, h, setText } from "../dom";
import type { Catalog } from "../kits";
import { attempt, attempting, note } from "../messages";
import type { Project } from "../project";
import { texts } from "../texts";
import { deltaFile, modelFile, openDelta, openModel, runFile } from "./files";
import { photosFile } from "./photos";

export interface TakeActions {
  opened(model: ModelRecord): Promise<void>;
  forget(): Promise<void>;
}

interface Offer {
  name: string;
  help: string;
  file: string;
  make(): Promise<BlobPart[]>;
}

export class TakeView {
  readonly element: HTMLElement;
  private readonly files = h("div", { class: "takes" });
  private readonly used = h("p", {});
  private model: ModelRecord | undefined;

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
      this.files,
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
    const delta = /\.safetensors$/i.test(file.name);
    const model = await (delta ? openDelta : openModel)(file, this.catalog);
    await this.project.store.saveModel(model);
    await this.actions.opened(model);
    note(texts.opened(file.name));
  }

  private draw(): void {
    const offers = [...this.offers()];
    fill(this.files, ...(offers.length ? offers.map(card) : [h("p", {}, texts.nothingToTake)]));
  }

  private *offers(): Generator<Offer> {
    const { model, catalog } = this;
    if (model?.run) {
      yield {
        name: texts.runZip,
        help: texts.runHelp,
        file: "run.zip",
        make: () => runFile(model, catalog),
      };
    }
    if (model) {
      yield {
        name: texts.delta,
        help: texts.deltaHelp,
        file: "delta.safetensors",
        make: () => deltaFile(model, catalog),
      };
      yield {
        name: texts.onnx,
        help: texts.onnxHelp,
        file: "model.onnx",
        make: () => modelFile(model, catalog),
      };
    }
    if (this.project.count) {
      yield {
        name: texts.photosZip,
        help: texts.photosHelp[this.project.task],
        file: "photos.zip",
        make: () => photosFile(this.project, model?.run?.photos),
      };
    }
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

function card({ name, help, file, make }: Offer): HTMLElement {
  const save = async () => {
    start.disabled = true;
    setText(start, texts.making);
    try {
      download(new Blob(await make()), file);
    } finally {
      start.disabled = false;
      setText(start, texts.download(file));
    }
  };
  const start = button(texts.download(file), "primary", attempting(save));
  return h("div", { class: "card" }, h("h3", {}, name), h("p", {}, help), start);
}

function download(blob: Blob, name: string): void {
  const href = URL.createObjectURL(blob);
  h("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000); // the browser reads it after the click
}
