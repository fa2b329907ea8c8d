/** Errors as one sentence, which stays until it is closed or another part is opened. */
import { UserError } from "../contract";
import { button, h } from "./dom";
import { texts } from "./texts";

const place = h("div", { class: "messages", role: "alert" });

/** Where the messages are shown. */
export function messages(): HTMLElement {
  return place;
}

/** The sentence for the user of any error. */
export function sentence(error: unknown): string {
  if (error instanceof UserError || (error as Error | undefined)?.name === "UserError") {
    return (error as Error).message.replace(/[^.!?]$/, "$&.");
  }
  return texts.unexpected(error instanceof Error ? error.message : String(error));
}

/** Show an error, in place of the one before. */
export function fail(error: unknown): void {
  if (!(error instanceof UserError)) console.error(error);
  say(sentence(error), "message error");
}

/** Show an error after which there is no page. */
export function failForGood(error: unknown): void {
  fail(error);
  place.querySelector("button")?.remove();
}

/** What was said is of the past. */
export function clear(): void {
  place.replaceChildren();
}

/** Show a sentence that is no error. */
export function note(text: string): void {
  say(text, "message");
}

function say(text: string, kind: string): void {
  const shown = h("div", { class: kind }, h("p", {}, text));
  shown.append(button(texts.close, "plain", () => shown.remove()));
  place.replaceChildren(shown);
}

/** Run what a click begins; its error becomes a message. */
export function attempt(action: () => Promise<unknown>): void {
  action().catch(fail);
}

/** A handler that does so. */
export function attempting(action: () => Promise<unknown>): () => void {
  return () => attempt(action);
}
