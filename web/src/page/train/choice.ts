/** The kits as a list to choose from. */
import type { TaskName } from "../../contract";
import { button, filePicker, fill, h } from "../dom";
import { type Catalog, describe, type Offer, type Unusable } from "../kits";
import { attempt, attempting, note, sentence } from "../messages";
import type { Project } from "../project";
import { texts } from "../texts";

export class KitChoice {
  readonly element = h("fieldset", { class: "card kits" });

  private shown: TaskName | undefined;

  constructor(
    private readonly project: Project,
    private readonly catalog: Catalog,
  ) {}

  /** Show the kits again if the photos have other labels now. Until they are read, none is chosen. */
  update(): void {
    if (this.shown && this.shown !== this.project.task) this.show();
  }

  /** Show the kits that there are for the photos; the first is chosen if none was. */
  show(): void {
    const { project } = this;
    this.shown = project.task;
    const offers = this.catalog.offers.filter(({ task }) => task === project.task);
    if (!offers.some(({ hash }) => hash === project.kit)) project.kit = offers[0]?.hash ?? null;
    fill(
      this.element,
      h("legend", {}, texts.kits),
      ...offers.map((offer) => this.row(offer)),
      ...this.catalog.unusable.map((kit) => this.unusableRow(kit)),
      filePicker(texts.addKit, "plain", { accept: ".zip" }, ([file]) => {
        if (file) attempt(() => this.add(file));
      }),
    );
  }

  /** Check a kit, keep it and choose it. */
  async add(file: File): Promise<void> {
    const offer = await this.catalog.add(file);
    await this.choose(offer);
    const fits = offer.task === this.project.task;
    note(fits ? texts.kitAdded(offer.name) : texts.kitOfOthers[offer.task](offer.name));
  }

  /** Choose a kit if it is for the photos, or there are none yet. */
  async choose({ hash, task }: Offer): Promise<void> {
    if (!this.project.count) await this.project.setTask(task);
    const saved = task === this.project.task ? this.project.chooseKit(hash) : undefined;
    this.show(); // what is chosen now, however long saving it takes
    await saved;
  }

  private row(offer: Offer): HTMLElement {
    const choice = h("input", {
      type: "radio",
      name: "kit",
      checked: offer.hash === this.project.kit,
      on: { change: attempting(() => this.project.chooseKit(offer.hash)) },
    });
    const label = h(
      "label",
      {},
      choice,
      h("span", {}, h("strong", {}, offer.name), h("small", {}, describe(offer))),
    );
    return h("div", { class: "kit" }, label, offer.path === null ? this.cross(offer) : null);
  }

  private unusableRow(kit: Unusable): HTMLElement {
    const said = h("p", {}, h("strong", {}, kit.name), h("small", {}, sentence(kit.error)));
    return h("div", { class: "kit" }, said, this.cross(kit));
  }

  private cross({ hash, name }: Pick<Unusable, "hash" | "name">): HTMLElement {
    const remove = async () => {
      await this.catalog.remove(hash);
      this.show();
      // The cross that had the focus is gone.
      const { element } = this;
      (element.querySelector<HTMLElement>(":checked") ?? element.querySelector("button"))?.focus();
      await this.project.chooseKit(this.project.kit);
    };
    return button("×", "plain", attempting(remove), { "aria-label": texts.removeKit(name) });
  }
}
