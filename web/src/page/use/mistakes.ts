/** The held-out photos that are told wrong. */
import type { Mistake, RunResult } from "../../contract";
import { h, showBlob } from "../dom";
import type { Project } from "../project";
import { texts } from "../texts";

const MISTAKES = 24;

/** The photos that are told wrong, the surest first. */
export function mistakeList(result: RunResult, project: Project): HTMLElement {
  const { mistakes } = result;
  if (!mistakes.length) return h("p", {}, texts.noMistakes);
  const items = mistakes.slice(0, MISTAKES).map((mistake) => {
    const image = h("img", { alt: "", width: 96, height: 96 });
    void project.store.thumbnail(mistake.photo).then((blob) => {
      if (blob) showBlob(image, blob);
    });
    return h("li", {}, image, h("span", {}, inWords(result, mistake)));
  });
  return h("ul", { class: "mistakes" }, ...items);
}

/** What a photo is and what it was taken for. */
export function inWords(
  { task, classes }: Pick<RunResult, "task" | "classes">,
  { question, label, guess, probability }: Mistake,
): string {
  const answer = (value: number) =>
    task === "attributes" ? texts.answer(classes[question]!, value === 1) : classes[value]!;
  return texts.mistake(answer(label), answer(guess), texts.percent(probability));
}
