/**
 * Which class each file is of: by class folders, or by a CSV. The rules are those of
 * `pocketune/data/layouts.py`, so that a folder means the same here and on the command line.
 */
import { type Split, UserError } from "../../contract";
import { texts } from "../texts";
import { parseTable } from "./table";

export interface Labeled {
  /** As in the list of files, with forward slashes. */
  path: string;
  label: string;
  /** Where the user's own files divide themselves into training and validation. */
  part: Split | null;
}

export interface Layout {
  labeled: Labeled[];
  /** Files that lie outside of class folders, or that the CSV does not list. */
  outside: string[];
}

const TRAIN = "train";
const VALIDATION = ["val", "valid", "validation", "test"]; // the first that exists is used
const FILE_COLUMNS = ["file", "filename", "file_name", "path", "image", "image_id"];
const LABEL_COLUMNS = ["label", "class"];
const SYSTEM = ["__macosx", "thumbs.db", "desktop.ini", "@eadir"];

/** Whether a file is the user's own, and none that a system has put there. */
export function isOwn(path: string): boolean {
  return !path
    .split("/")
    .some((part) => part.startsWith(".") || SYSTEM.includes(part.toLowerCase()));
}

export function isTable(path: string): boolean {
  return path.toLowerCase().endsWith(".csv");
}

/** Read class folders: `cats/1.jpg`, or `train/cats/1.jpg` and `val/cats/2.jpg`. */
export function byFolders(paths: string[]): Layout {
  const folders = [...new Set(paths.map(folderOf))];
  const prefix = wrapper(folders);
  const below = new Map(
    folders.map((folder) => [folder, folder.slice(prefix.length).split("/").filter(Boolean)]),
  );
  const tops = new Set([...below.values()].flatMap((parts) => parts[0]?.toLowerCase() ?? []));
  const nested = [...below.values()].some((parts) => parts.length > 1 && isTrain(parts[0]));
  const divided = nested || (tops.has(TRAIN) && VALIDATION.some((name) => tops.has(name)));
  const found: (Labeled & { folder: string | null })[] = [];
  const outside: string[] = [];
  for (const path of paths) {
    const parts = below.get(folderOf(path))!;
    const folder = divided ? (parts[0]?.toLowerCase() ?? null) : null;
    const label = parts[folder === null ? 0 : 1];
    if (label === undefined || (folder !== null && !isPart(folder))) outside.push(path);
    else found.push({ path, label: label.normalize("NFC"), part: partOf(folder), folder });
  }
  return { labeled: oneValidation(found), outside };
}

/**
 * Read a CSV with the columns file and label, and perhaps split; without titles, these two.
 * Files are relative to the table's folder.
 *
 * @throws UserError if the text is no such table.
 */
export function byTable(text: string, table: string, paths: string[]): Layout {
  const rows = parseTable(text);
  const first = rows[0];
  if (!first) throw new UserError(texts.table.empty(table));
  const columns = columnsOf(first);
  if (!columns) {
    throw new UserError(texts.table.columns(table, first.join(", ").slice(0, 80)));
  }
  const base = folderOf(table);
  const known = new Set(paths);
  const found = new Map<string, Labeled & { folder: string | null }>();
  for (const [index, row] of rows.entries()) {
    if (index === 0 && columns.titled) continue;
    const file = row[columns.file];
    const label = row[columns.label]?.normalize("NFC");
    const line = index + 1;
    if (!file) throw new UserError(texts.table.noFile(table, line));
    if (!label) throw new UserError(texts.table.noLabel(table, line));
    const folder = columns.split < 0 ? null : (row[columns.split] ?? "").toLowerCase();
    if (folder !== null && !isPart(folder)) {
      throw new UserError(texts.table.split(table, folder, line));
    }
    const path = join(base, file);
    const before = found.get(path);
    if (before && (before.label !== label || before.folder !== folder)) {
      throw new UserError(texts.table.twice(table, file));
    }
    if (known.has(path)) found.set(path, { path, label, part: partOf(folder), folder });
  }
  if (!found.size) {
    throw new UserError(texts.table.noneGiven(table));
  }
  const outside = paths.filter((path) => !found.has(path) && path !== table);
  return { labeled: oneValidation([...found.values()]), outside };
}

/** Names in the order of the command line: by number if all are integers, else by characters. */
export function inOrder(labels: Iterable<string>): string[] {
  const unique = [...new Set(labels)].sort((a, b) => (a < b ? -1 : 1));
  const integers = unique.every((label) => /^\d{1,15}$/.test(label));
  return integers ? unique.sort((a, b) => Number(a) - Number(b)) : unique;
}

function columnsOf(first: string[]) {
  const titles = first.map((cell) => cell.toLowerCase().replaceAll(" ", "_"));
  const at = (names: string[]) => titles.findIndex((title) => names.includes(title));
  const columns = { file: at(FILE_COLUMNS), label: at(LABEL_COLUMNS), split: at(["split"]) };
  if (columns.file >= 0 && columns.label >= 0) return { ...columns, titled: true };
  const untitled = first.length === 2 && first[0]!.includes("."); // a file name, not a title
  return untitled ? { file: 0, label: 1, split: -1, titled: false } : null;
}

/** Without `test` if there is a `val`: the test photos are not to be seen. */
function oneValidation(found: (Labeled & { folder: string | null })[]): Labeled[] {
  const used = VALIDATION.find((name) => found.some((each) => each.folder === name));
  return found
    .filter(({ folder }) => folder === null || folder === TRAIN || folder === used)
    .map(({ path, label, part }) => ({ path, label, part }));
}

function partOf(folder: string | null): Split | null {
  if (folder === null) return null;
  return folder === TRAIN ? "train" : "validation";
}

function isPart(folder: string): boolean {
  return folder === TRAIN || VALIDATION.includes(folder);
}

function isTrain(folder: string | undefined): boolean {
  return folder?.toLowerCase() === TRAIN;
}

function folderOf(path: string): string {
  return path.slice(0, Math.max(0, path.lastIndexOf("/")));
}

/** The folder, with its slash, that contains everything; empty if it is the only class. */
function wrapper(folders: string[]): string {
  let prefix = "";
  let left = new Set(folders);
  for (;;) {
    const tops = new Set([...left].map((folder) => folder.split("/")[0]!));
    if (tops.size !== 1 || ![...left].some((folder) => folder.includes("/"))) return prefix;
    const top = `${[...tops][0]!}/`;
    prefix += top;
    left = new Set([...left].map((folder) => folder.slice(top.length)));
  }
}

function join(base: string, file: string): string {
  const parts: string[] = [];
  for (const part of `${base}/${file.replaceAll("\\", "/")}`.split("/")) {
    if (part === "..") parts.pop();
    else if (part && part !== ".") parts.push(part);
  }
  return parts.join("/");
}
