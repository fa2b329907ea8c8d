/**
 * Which class each file is of, by class folders. The rules are those of
 * `pocketune/data/labels/layouts.py`, so that a folder means the same here and on the command line.
 */
import type { Split, TaskName } from "../../../contract";
import { isTable } from "./rows";

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
}

/** `test` is for an evaluation: no run sees these photos. */
export type Part = Split | "test";
export type Found = Omit<Labeled, "part"> & { part: Part | null };

export const PARTS = new Map<string, Part>([
  ["train", "train"],
  ["training", "train"],
  ["val", "validation"],
  ["valid", "validation"],
  ["validation", "validation"],
  ["dev", "validation"],
  ["test", "test"],
  ["testing", "test"],
  ["eval", "test"],
  ["evaluation", "test"],
]);
const SYSTEM = ["__macosx", "thumbs.db", "desktop.ini", "@eadir"];
const OF_PHOTOS = new RegExp(
  `^((${[...PARTS.keys()].join("|")})[-_ ]?)?(images?|imgs?|photos?|pictures?)?$`,
  "i",
);

/** Whether a file is the user's own, and none that a system has put there. */
export function isOwn(path: string): boolean {
  return !path
    .split("/")
    .some((part) => part.startsWith(".") || SYSTEM.includes(part.toLowerCase()));
}

/**
 * Read class folders: `cats/1.jpg`, or `train/cats/1.jpg` and `val/cats/2.jpg`. A table is no photo,
 * but its folder counts.
 */
export function byFolders(paths: string[]): Layout {
  const folders = foldersOf(paths);
  const prefix = around(folders, new Set(foldersOf(paths.filter(isTable))));
  const below = new Map(
    folders.map((folder) => [folder, folder.slice(prefix.length).split("/").filter(Boolean)]),
  );
  const places = [...below.values()];
  const present = new Set(places.flatMap(([top]) => partOf(top) ?? []));
  const nested = places.some((place) => place.length > 1 && partOf(place[0]) === "train");
  const divided = nested || (present.has("train") && present.size > 1);
  const found: Found[] = [];
  for (const path of paths.filter((each) => !isTable(each))) {
    const place = below.get(folderOf(path))!;
    const part = divided ? partOf(place[0]) : null;
    const label = place[divided ? 1 : 0];
    if (label !== undefined && (!divided || part !== null)) {
      found.push({ path, labels: [label.normalize("NFC")], part });
    }
  }
  return ofClasses(inUse(found));
}

/** Whether all folders are named after photos, as `train_images`, and none after a class. */
export function areOfPhotos(folders: string[]): boolean {
  return folders.every((folder) => OF_PHOTOS.test(folder));
}

export function ofClasses(labeled: Labeled[]): Layout {
  const classes = inOrder(labeled.flatMap(({ labels }) => labels));
  return { task: "classification", classes, labeled };
}

/** Names in the order of the command line: by number if all are integers, else by characters. */
export function inOrder(labels: Iterable<string>): string[] {
  const unique = [...new Set(labels)].sort((a, b) => (a < b ? -1 : 1));
  const integers = unique.every((label) => /^\d{1,15}$/.test(label));
  return integers ? unique.sort((a, b) => Number(a) - Number(b)) : unique;
}

export function inUse(found: Found[]): Labeled[] {
  return found.flatMap(({ part, ...each }) => (part === "test" ? [] : [{ ...each, part }]));
}

export function partOf(name: string | undefined): Part | null {
  return PARTS.get(name?.toLowerCase() ?? "") ?? null;
}

/** The folders that files are in; the root is empty. */
export function foldersOf(paths: string[]): string[] {
  return [...new Set(paths.map(folderOf))];
}

export function folderOf(path: string): string {
  return path.slice(0, Math.max(0, path.lastIndexOf("/")));
}

/** The folder, with its slash, that contains everything; empty if it is the only class. */
export function wrapper(folders: string[]): string {
  return around(folders, new Set(folders));
}

/** The same, at most the first of the folders `last` on the way; others may have files, too. */
function around(folders: string[], last: Set<string>): string {
  let prefix = "";
  for (;;) {
    const inside = folders
      .filter((folder) => folder.startsWith(prefix) && folder !== prefix)
      .map((folder) => folder.slice(prefix.length));
    const [top, ...others] = new Set(inside.map((folder) => folder.split("/")[0]!));
    const nested = inside.some((folder) => folder.includes("/"));
    if (top === undefined || others.length || !nested || last.has(prefix.slice(0, -1))) {
      return prefix;
    }
    prefix += `${top}/`;
  }
}
