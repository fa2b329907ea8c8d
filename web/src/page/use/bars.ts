/** The probability of each class as a bar. */
import { h, setText } from "../dom";
import { texts } from "../texts";
import type { Answer } from "./model";

/** Classes that have a bar; of more, the likeliest. */
const MOST = 8;

export class Bars {
  readonly element: HTMLElement;
  private readonly title = h("h3", {}, texts.looking);
  private readonly list = h("ul", { class: "bars" });

  constructor(private readonly classes: string[]) {
    this.element = h("div", { class: "prediction" }, this.title, this.list);
  }

  show({ guess, probabilities, unknown }: Answer): void {
    this.element.classList.toggle("unknown", unknown);
    setText(this.title, heading(this.classes, { guess, unknown }));
    const order = [...probabilities.keys()];
    if (order.length > MOST) order.sort((a, b) => probabilities[b]! - probabilities[a]!);
    const rows = order.slice(0, MOST);
    while (this.list.children.length > rows.length) this.list.lastChild!.remove();
    rows.forEach((index, i) =>
      this.row(i, this.classes[index]!, probabilities[index]!, index === guess),
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

/** The class that is told, in words. */
export function heading(classes: string[], { guess, unknown }: Pick<Answer, "guess" | "unknown">) {
  if (guess < 0) return texts.unreadable;
  return unknown ? texts.noneOfThese : classes[guess]!;
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
