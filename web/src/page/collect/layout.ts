/**
 * Which class each file is of, or which attributes it has: by class folders, or by a CSV. The rules
 * are those of `pocketune/data/labels/layouts.py`, so that a folder means the same here and on the command
 * line.
 */
import { type Split, type TaskName, UserError } from "../../contract";
import { texts } from "../texts";
import { attributeColumns, type ReadRow } from "./attributes";
import { parseCelebA, parseTable } from "./table";

export interface Labeled {
  /** As in the list of files, with forward slashes. */
  path: string;
  /** One class; or the attributes that it has. */
  labels: string[];
  /** Where the user's own files divide themselves into training and validation. */
  part: Split | null;
}

export interface Layout {
  task: TaskName;
  /** The classes that occur, or all attributes of the table, in order. */
  classes: string[];
  labeled: Labeled[];
  /** Files that lie outside of class folders, or that the CSV does not list. */
  outside: string[];
}

/** `test` is for an evaluation: no run sees these photos. */
type Part = Split | "test";
type Found = Omit<Labeled, "part"> & { part: Part | null };

const PARTS = new Map<string, Part>([
  ["train", "train"],
  ["training", "train"],
  ["val", "validation"],
  ["valid", "validation"],
  ["validation", "validation"],
  ["test", "test"],
  ["testing", "test"],
]);
const FILE_COLUMNS = ["file", "filename", "file_name", "path", "image", "image_id"];
const LABEL_COLUMNS = ["label", "class"];
const CELEBA = "list_attr_celeba.txt";
const SYSTEM = ["__macosx", "thumbs.db", "desktop.ini", "@eadir"];

/** Whether a file is the user's own, and none that a system has put there. */
export function isOwn(path: string): boolean {
  return !path
    .split("/")
    .some((part) => part.startsWith(".") || SYSTEM.includes(part.toLowerCase()));
}

function isCelebA(path: string): boolean {
  return path.split("/").at(-1) === CELEBA;
}

export function isTable(path: string): boolean {
  return /\.[ct]sv$/i.test(path) || isCelebA(path);
}

/** Read class folders: `cats/1.jpg`, or `train/cats/1.jpg` and `val/cats/2.jpg`. */
export function byFolders(paths: string[]): Layout {
  const folders = [...new Set(paths.map(folderOf))];
  const prefix = wrapper(folders);
  const below = new Map(
    folders.map((folder) => [folder, folder.slice(prefix.length).split("/").filter(Boolean)]),
  );
  const places = [...below.values()];
  const present = new Set(places.flatMap(([top]) => partOf(top) ?? []));
  const nested = places.some((place) => place.length > 1 && partOf(place[0]) === "train");
  const divided = nested || (present.has("train") && present.size > 1);
  const found: Found[] = [];
  const outside: string[] = [];
  for (const path of paths) {
    const place = below.get(folderOf(path))!;
    const part = divided ? partOf(place[0]) : null;
    const label = place[divided ? 1 : 0];
    if (label === undefined || (divided && part === null)) outside.push(path);
    else found.push({ path, labels: [label.normalize("NFC")], part });
  }
  return ofClasses(inUse(found), outside);
}

/**
 * Read a CSV with the columns file and label, and perhaps split; without titles, the first two. If
 * there is no label, every other column is an attribute. Files are relative to the table's folder.
 *
 * @throws UserError if the text is no such table.
 */
export function byTable(text: string, table: string, paths: string[]): Layout {
  const rows = isCelebA(table) ? parseCelebA(text) : parseTable(text);
  const first = rows[0];
  if (!first) throw new UserError(texts.table.empty(table));
  const columns = columnsOf(first, table);
  if (!columns) {
    throw new UserError(texts.table.columns(table, first.join(", ").slice(0, 80)));
  }
  const base = folderOf(table);
  const known = new Set(paths);
  const found = new Map<string, Found>();
  for (const [index, row] of rows.entries()) {
    if (index === 0 && columns.titled) continue;
    const file = row[columns.file];
    const line = index + 1;
    if (!file) throw new UserError(texts.table.noFile(table, line));
    const labels = columns.read(row, line);
    const split = columns.split < 0 ? null : (row[columns.split] ?? "").toLowerCase();
    const part = split === null ? null : partOf(split);
    if (split !== null && part === null) {
      throw new UserError(texts.table.split(table, split, line));
    }
    const path = join(base, file);
    const before = found.get(path);
    if (before && (before.labels.join("\n") !== labels.join("\n") || before.part !== part)) {
      throw new UserError(texts.table.twice(table, file));
    }
    if (known.has(path)) found.set(path, { path, labels, part });
  }
  if (!found.size) {
    throw new UserError(texts.table.noneGiven(table));
  }
  const outside = paths.filter((path) => !found.has(path) && path !== table);
  const labeled = inUse([...found.values()]);
  const { attributes } = columns;
  return attributes
    ? { task: "attributes", classes: attributes, labeled, outside }
    : ofClasses(labeled, outside);
}

function ofClasses(labeled: Labeled[], outside: string[]): Layout {
  const classes = inOrder(labeled.flatMap(({ labels }) => labels));
  return { task: "classification", classes, labeled, outside };
}

/** Names in the order of the command line: by number if all are integers, else by characters. */
export function inOrder(labels: Iterable<string>): string[] {
  const unique = [...new Set(labels)].sort((a, b) => (a < b ? -1 : 1));
  const integers = unique.every((label) => /^\d{1,15}$/.test(label));
  return integers ? unique.sort((a, b) => Number(a) - Number(b)) : unique;
}

interface Columns {
  file: number;
  split: number;
  titled: boolean;
  /** The names of attributes; null for classes. */
  attributes: string[] | null;
  read: ReadRow;
}

function columnsOf(first: string[], table: string): Columns | null {
  const titles = first.map((cell) => cell.toLowerCase().replaceAll(" ", "_"));
  const at = (names: string[]) => titles.findIndex((title) => names.includes(title));
  const [file, label, split] = [at(FILE_COLUMNS), at(LABEL_COLUMNS), at(["split"])];
  const classes = (place: number): Pick<Columns, "attributes" | "read"> => ({
    attributes: null,
    read: (row, line) => {
      const found = row[place];
      if (!found) throw new UserError(texts.table.noLabel(table, line));
      return [found.normalize("NFC")];
    },
  });
  if (file >= 0 && label >= 0) return { file, split, titled: true, ...classes(label) };
  const untitled = first.length === 2 && first[0]!.includes("."); // a file name, not a title
  if (untitled) return { file: 0, split: -1, titled: false, ...classes(1) };
  if (file < 0) return null;
  const free = [...first.keys()].filter((place) => place !== file && place !== split);
  const found = attributeColumns(first, free, table);
  return found && { file, split, titled: true, attributes: found.names, read: found.read };
}

function inUse(found: Found[]): Labeled[] {
  return found.flatMap(({ part, ...each }) => (part === "test" ? [] : [{ ...each, part }]));
}

function partOf(name: string | undefined): Part | null {
  return PARTS.get(name?.toLowerCase() ?? "") ?? null;
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
