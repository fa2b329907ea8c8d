/** The kits as a list to choose from. */
import { button, fill, h } from "../dom";
import { type Catalog, describe, type Offer } from "../kits";
import { attempting, note } from "../messages";
import type { Project } from "../project";
import { texts } from "../texts";

export class KitChoice {
  readonly element = h("fieldset", { class: "card kits" });

  constructor(
    private readonly project: Project,
    private readonly catalog: Catalog,
  ) {}

  /** Show the kits that there are; the first is chosen if none was. */
  async show(): Promise<void> {
    const { offers } = this.catalog;
    if (!this.catalog.find(this.project.kit)) this.project.kit = offers[0]?.hash ?? null;
    const input = h("input", { type: "file", accept: ".zip", hidden: true });
    input.addEventListener("change", () => {
      const file = input.files?.[0];
      input.value = "";
      if (file) attempting(() => this.add(file))();
    });
    fill(
      this.element,
      h("legend", {}, texts.kits),
      ...offers.map((offer) => this.row(offer)),
      input,
      button(texts.addKit, "plain", () => input.click()),
    );
  }

  /** Check a kit, keep it and choose it. */
  async add(file: File): Promise<void> {
    const { hash, name } = await this.catalog.add(file);
    await this.project.chooseKit(hash);
    await this.show();
    note(texts.kitAdded(name));
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
      await this.show();
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
