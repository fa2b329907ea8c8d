/** What held-out photos of classes are taken for. */
import type { RunResult } from "../../contract";
import { h } from "../dom";
import { texts } from "../texts";

/** Classes of which there is a table; of more, the pairs that are confused most often. */
const MOST_CLASSES = 30;
const PAIRS = 24;

/** What held-out photos are taken for: with a line of help, all of it or the most of it. */
export function confusionOf(result: RunResult): HTMLElement[] {
  const few = result.classes.length <= MOST_CLASSES;
  const help = few ? texts.confusionHelp : texts.confusionMost;
  return [h("p", { class: "muted" }, help), few ? table(result) : pairs(result)];
}

function pairs({ classes, confusion: [confusion = []] }: RunResult): HTMLElement {
  const found = confusedPairs(confusion).slice(0, PAIRS);
  if (!found.length) return h("p", {}, texts.noMistakes);
  const items = found.map(({ count, actual, guess }) =>
    h("li", {}, texts.cell(count, classes[actual]!, classes[guess]!)),
  );
  return h("ul", {}, ...items);
}

/** Pairs of different classes that occur, the most frequent first. */
export function confusedPairs(confusion: number[][]) {
  const all = confusion.flatMap((row, actual) =>
    row.flatMap((count, guess) => (count && actual !== guess ? [{ count, actual, guess }] : [])),
  );
  return all.sort((a, b) => b.count - a.count);
}

/** The matrix with a heading for each row and column. */
function table({ classes, confusion: [confusion = []] }: RunResult): HTMLElement {
  const rows = confusion.map((row, actual) => {
    const total = Math.max(
      1,
      row.reduce((a, b) => a + b, 0),
    );
    const cells = row.map((count, guess) => {
      const strength = Math.round((10 * count) / total);
      const kind = count ? `${actual === guess ? "right" : "wrong"} strength-${strength}` : "";
      return h(
        "td",
        { class: kind, title: texts.cell(count, classes[actual]!, classes[guess]!) },
        count || "",
      );
    });
    return h("tr", {}, h("th", { scope: "row" }, classes[actual]!), ...cells);
  });
  const names = classes.map((name) => h("th", { scope: "col" }, h("span", {}, name)));
  return h(
    "div",
    { class: "scroll", tabIndex: 0, role: "region", "aria-label": texts.confusion },
    h(
      "table",
      { class: "confusion" },
      h("thead", {}, h("tr", {}, h("td", {}), ...names)),
      h("tbody", {}, ...rows),
    ),
  );
}
