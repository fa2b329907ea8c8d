/** The probability of each class or attribute as a bar. */
import type { ModelRecord } from "../../storage/schema";
import { h, setText } from "../dom";
import { texts } from "../texts";
import type { Answer } from "./model";

/** Classes that have a bar; of more, the likeliest. */
const MOST = 8;

export class Bars {
  readonly element: HTMLElement;
  private readonly title = h("h3", {}, texts.looking);
  private readonly list = h("ul", { class: "bars" });

  constructor(private readonly model: ModelRecord) {
    this.element = h("div", { class: "prediction" }, this.title, this.list);
  }

  show(answer: Answer): void {
    const { told, probabilities, unknown } = answer;
    this.element.classList.toggle("unknown", unknown);
    setText(this.title, heading(this.model, answer));
    const order = [...probabilities.keys()];
    if (order.length > MOST) order.sort((a, b) => probabilities[b]! - probabilities[a]!);
    const rows = order.slice(0, MOST);
    while (this.list.children.length > rows.length) this.list.lastChild!.remove();
    rows.forEach((index, i) =>
      this.row(i, this.model.classes[index]!, probabilities[index]!, told.includes(index)),
    );
  }

  private row(i: number, name: string, probability: number, likeliest: boolean): void {
    const row = this.list.children[i] ?? this.list.appendChild(newRow());
    const [label, bar, value] = row.children as unknown as [HTMLElement, HTMLElement, HTMLElement];
    row.classList.toggle("likeliest", likeliest);
    setText(label, name);
    setText(value, texts.percent(probability));
    (bar.firstChild as HTMLElement).style.width = `${100 * probability}%`;
  }
}

/** What is told of a photo, in words. */
export function heading({ classes, task }: ModelRecord, { told, probabilities, unknown }: Answer) {
  if (!probabilities.length) return texts.unreadable;
  if (unknown) return texts.noneOfThese;
  const names = told.map((index) => classes[index]!);
  if (!names.length && task === "attributes") return texts.noneOfAttributes;
  return texts.andList(names);
}

function newRow(): HTMLElement {
  return h(
    "li",
    {},
    h("span", { class: "name" }),
    h("span", { class: "bar", "aria-hidden": "true" }, h("span", {})),
    h("span", { class: "value" }),
  );
}
