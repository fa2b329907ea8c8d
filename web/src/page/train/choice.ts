/** The kits as a list to choose from. */
import type { TaskName } from "../../contract";
import { button, filePicker, fill, h } from "../dom";
import { type Catalog, describe, type Offer } from "../kits";
import { attempt, attempting, note } from "../messages";
import type { Project } from "../project";
import { texts } from "../texts";

export class KitChoice {
  readonly element = h("fieldset", { class: "card kits" });

  private shown: TaskName | undefined;

  constructor(
    private readonly project: Project,
    private readonly catalog: Catalog,
  ) {}

  /** Show the kits again if the photos have other labels now. */
  update(): void {
    if (this.shown !== this.project.task) this.show();
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
    if (task === this.project.task) await this.project.chooseKit(hash);
    this.show();
  }

  private row(offer: Offer): HTMLElement {
    const choice = h("input", {
      type: "radio",
      name: "kit",
      checked: offer.hash === this.project.kit,
      on: { change: attempting(() => this.project.chooseKit(offer.hash)) },
    });
    const remove = async () => {
      await this.catalog.remove(offer.hash);
      this.show();
      await this.project.chooseKit(this.project.kit);
    };
    const label = h(
      "label",
      {},
      choice,
      h("span", {}, h("strong", {}, offer.name), h("small", {}, describe(offer))),
    );
    const cross =
      offer.path === null
        ? button("×", "plain", attempting(remove), { "aria-label": texts.removeKit(offer.name) })
        : null;
    return h("div", { class: "kit" }, label, cross);
  }
}
