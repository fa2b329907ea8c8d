/** Files that are left out, and why. */
import { UserError } from "../contract";
import { texts } from "./texts";

/** Files that one message names. */
const LISTED = 5;

export interface Skipped {
  name: string;
  reason: string;
}

/** Why a file is left out, by the error that it gave. */
export function reasonOf(error: unknown): string {
  if (error instanceof UserError) return error.message;
  return texts.notTaken(error instanceof Error ? error.message : String(error));
}

/** A sentence, if there is one, and a line for each file. */
export function withSkipped(said: string, skipped: Skipped[]): string {
  const names = skipped.slice(0, LISTED).map(({ name, reason }) => `${name}: ${reason}`);
  const more = skipped.length > LISTED ? [texts.and(skipped.length - LISTED)] : [];
  return [said, ...names, ...more].filter(Boolean).join("\n");
}
