/** Files as the browser hands them over: chosen, dropped with their folders, or pasted. */
import { openArchive } from "./archive";
import { isOwn } from "./labels/layout";

/** A file that can be opened when it is needed. */
export interface Source {
  path: string;
  open(): Promise<Blob>;
}

/** Files that were dropped or chosen, by what they are. */
export interface Given {
  photos: Source[];
  kits: File[];
  runs: File[];
  /** Deltas. */
  tensors: File[];
}

const MANIFEST = "manifest.json";
/** The values that a run has found, which a kit lacks. */
const BEST = "best.safetensors";

export function ofFiles(files: Iterable<File>): Source[] {
  return [...files].map((file) => ({
    path: file.webkitRelativePath || file.name,
    open: () => Promise.resolve(file),
  }));
}

/** Files and folders of a drop. It begins at once, because the browser forgets them soon. */
export async function ofDrop(data: DataTransfer): Promise<Source[]> {
  const entries = [...data.items].flatMap((item) => item.webkitGetAsEntry?.() ?? []);
  if (!entries.length) return ofFiles(data.files);
  return (await Promise.all(entries.map(filesBelow))).flat();
}

/** Pictures of the clipboard. */
export function ofPaste(data: DataTransfer): Source[] {
  return ofFiles([...data.files].filter((file) => file.type.startsWith("image/")));
}

/** Look into archives, and tell photos from kits, runs and deltas. */
export async function sorted(sources: Source[]): Promise<Given> {
  const given: Given = { photos: [], kits: [], runs: [], tensors: [] };
  for (const source of sources.filter(({ path }) => isOwn(path))) {
    const name = source.path.toLowerCase();
    if (name.endsWith(".safetensors")) given.tensors.push(await asFile(source));
    else if (!name.endsWith(".zip")) given.photos.push(source);
    else {
      const file = await asFile(source);
      const members = await openArchive(file, file.name);
      const names = new Set(members.map((each) => each.path.split("/").at(-1)));
      if (names.has(MANIFEST)) (names.has(BEST) ? given.runs : given.kits).push(file);
      else given.photos.push(...members.filter(({ path }) => isOwn(path)));
    }
  }
  return given;
}

async function asFile(source: Source): Promise<File> {
  const blob = await source.open();
  return blob instanceof File ? blob : new File([blob], source.path.split("/").at(-1)!);
}

async function filesBelow(entry: FileSystemEntry): Promise<Source[]> {
  if (entry.isDirectory) {
    const below = await childrenOf(entry as FileSystemDirectoryEntry);
    return (await Promise.all(below.map(filesBelow))).flat();
  }
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
