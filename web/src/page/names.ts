/** Which names classes and attributes may have. */
import { type TaskName, UserError } from "../contract";
import { CHARACTERS_NOT_SHOWN } from "../formats/manifest";
import { texts } from "./texts";

const LONGEST = 200;
/** Titles of columns that are no attributes; see docs/attributes.md. */
const RESERVED = [
  ...["file", "filename", "file_name", "path", "image", "image_id"],
  ...["split", "label", "class", "mask"],
];

/** @throws UserError if nothing of the task may have this name. */
export function checkName(name: string, task: TaskName): void {
  if (!name) throw new UserError(texts.namelessClass);
  if (CHARACTERS_NOT_SHOWN.test(name)) {
    throw new UserError(texts.strangeName(name.split(CHARACTERS_NOT_SHOWN).join("\ufffd")));
  }
  if (Array.from(name).length > LONGEST) throw new UserError(texts.longName(LONGEST));
  if (task === "attributes" && isReserved(name)) throw new UserError(texts.reservedName(name));
}

/** A name that came with photos, as long as one may be; no half of a character is left. */
export function shortened(name: string): string {
  return Array.from(name).slice(0, LONGEST).join("");
}

/** Whether a table could not have an attribute of this name. */
function isReserved(name: string): boolean {
  return RESERVED.includes(name.toLowerCase().replaceAll(" ", "_"));
}
