/** Files as the browser hands them over: chosen, dropped with their folders, or pasted. */
import { UserError } from "../../contract";
import { texts } from "../texts";
import { openArchive } from "./archive";
import { foldersOf, isOwn } from "./labels/layout";

const MOST_FILES = 200_000;

/** A file that can be opened when it is needed. */
export interface Source {
  path: string;
  open(): Promise<Blob>;
}

/** Files that were dropped or chosen, by what they are. */
export interface Given {
  photos: Source[];
  /** Folders among them that Pocketune has written, whose files are no photos. */
  ours: string[];
  kits: File[];
  runs: File[];
  /** Deltas. */
  tensors: File[];
}

/**
 * Files by which the folder of a kit or run, a run without its kit, a plan and a comparison are
 * known, as in `pocketune/data/sources.py`.
 */
const KIT = ["manifest.json", "step.onnx"];
const OURS = [KIT, ["metrics.jsonl"], ["plan.json"], ["compare.json"]];
/** The values that a run has found, and those that it goes on from; a kit has neither. */
const VALUES = ["best.safetensors", "last.safetensors"];

export function ofFiles(files: Iterable<File>): Source[] {
  return [...files].map((file) => ({
    path: file.webkitRelativePath || file.name,
    open: () => Promise.resolve(file),
  }));
}

/**
 * Files and folders of a drop. It begins at once, because the browser forgets them soon.
 *
 * @throws UserError if there are too many.
 */
export async function ofDrop(data: DataTransfer): Promise<Source[]> {
  const entries = [...data.items].flatMap((item) => item.webkitGetAsEntry?.() ?? []);
  if (!entries.length) return ofFiles(data.files);
  const total = { files: 0 };
  return (await Promise.all(entries.map((entry) => filesBelow(entry, total)))).flat();
}

function checkCount(count: number): void {
  if (count > MOST_FILES) throw new UserError(texts.tooManyFiles(MOST_FILES));
}

/** Pictures of the clipboard. */
export function ofPaste(data: DataTransfer): Source[] {
  return ofFiles([...data.files].filter((file) => file.type.startsWith("image/")));
}

/**
 * Look into archives, and tell photos from kits, runs and deltas.
 *
 * @throws UserError if there are too many files, or an archive cannot be read.
 */
export async function sorted(sources: Source[]): Promise<Given> {
  checkCount(sources.length);
  const given: Given = { photos: [], ours: [], kits: [], runs: [], tensors: [] };
  const { own, ours } = divided(sources);
  given.ours.push(...ours);
  for (const source of own) {
    const name = source.path.toLowerCase();
    if (name.endsWith(".safetensors")) given.tensors.push(await asFile(source));
    else if (name.endsWith(".zip")) await sortArchive(await asFile(source), given);
    else given.photos.push(source);
  }
  return given;
}

/** A kit or run is at the top, or in a folder beside which nothing is. */
async function sortArchive(file: File, given: Given): Promise<void> {
  const members = await openArchive(file, file.name);
  const { own, ours } = divided(members);
  const paths = new Set(members.map(({ path }) => path));
  const top = ["", ...(own.length ? [] : ours.map((folder) => `${folder}/`))].find((folder) =>
    KIT.every((each) => paths.has(folder + each)),
  );
  if (top !== undefined) {
    (VALUES.some((each) => paths.has(top + each)) ? given.runs : given.kits).push(file);
    return;
  }
  given.photos.push(...own);
  given.ours.push(...ours);
}

/** The user's own files, without those of a system; and the folders that Pocketune has written. */
function divided<T extends Pick<Source, "path">>(files: T[]): { own: T[]; ours: string[] } {
  const all = files.filter(({ path }) => isOwn(path));
  const paths = new Set(all.map(({ path }) => path));
  const isOurs = (folder: string) =>
    OURS.some((marks) => marks.every((mark) => paths.has(`${folder}/${mark}`)));
  const ours = foldersOf([...paths]).filter(isOurs);
  const own = all.filter(({ path }) => !ours.some((folder) => path.startsWith(`${folder}/`)));
  return { own, ours };
}

async function asFile(source: Source): Promise<File> {
  const blob = await source.open();
  return blob instanceof File ? blob : new File([blob], source.path.split("/").at(-1)!);
}

/** Args: what was dropped; how many files of the drop have been found, which it counts on. */
async function filesBelow(entry: FileSystemEntry, total: { files: number }): Promise<Source[]> {
  if (entry.isDirectory) {
    const below = await childrenOf(entry as FileSystemDirectoryEntry);
    return (await Promise.all(below.map((each) => filesBelow(each, total)))).flat();
  }
  checkCount(++total.files);
  const file = entry as FileSystemFileEntry;
  return [
    {
      path: entry.fullPath.replace(/^\//, ""),
      open: () => new Promise<File>((resolve, reject) => file.file(resolve, reject)),
    },
  ];
}

async function childrenOf(folder: FileSystemDirectoryEntry): Promise<FileSystemEntry[]> {
  const reader = folder.createReader();
  const all: FileSystemEntry[] = [];
  for (;;) {
    const some = await new Promise<FileSystemEntry[]>((resolve, reject) =>
      reader.readEntries(resolve, reject),
    ); // a hundred at a time
    if (!some.length) return all;
    all.push(...some);
  }
}
