/** How well each attribute of held-out photos is told; see AttributeResult of Python. */
import type { RunResult } from "../../contract";
import { h } from "../dom";
import { texts } from "../texts";

/** A table with a row for each attribute, and a line of help. */
export function attributeTable({ classes, confusion }: RunResult): HTMLElement[] {
  const [first, ...numbers] = texts.attributeColumns;
  const rows = confusion.map((counts, i) => {
    const { present, accuracy, recall, precision } = sharesOf(counts);
    const shares = [accuracy, recall, precision].map((share) =>
      h("td", {}, Number.isNaN(share) ? "–" : texts.percent(share)),
    );
    const name = h("th", { scope: "row" }, classes[i]!);
    return h("tr", {}, name, h("td", {}, texts.number(present)), ...shares);
  });
  const titles = numbers.map((title) => h("th", { scope: "col" }, title));
  const table = h(
    "table",
    { class: "shares" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, first), ...titles)),
    h("tbody", {}, ...rows),
  );
  const scroll = { class: "scroll", tabIndex: 0, role: "region", "aria-label": texts.perAttribute };
  return [h("p", { class: "muted" }, texts.perAttributeHelp), h("div", scroll, table)];
}

/** From photos by whether they have an attribute and whether that is told; NaN where there are none. */
export function sharesOf(counts: number[][]) {
  const [[absent = 0, wrong = 0] = [], [missed = 0, found = 0] = []] = counts;
  const present = missed + found;
  return {
    present,
    accuracy: (absent + found) / (absent + wrong + present),
    recall: found / present,
    precision: found / (wrong + found),
  };
}
