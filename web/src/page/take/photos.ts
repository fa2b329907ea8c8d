/**
 * All photos as a .zip of class folders, or with a table of labels, as the command line reads them.
 * They are divided as the run divided them, so that `pocketune evaluate` scores those it held out.
 */
import { strToU8, Zip, ZipPassThrough } from "fflate";
import { type PhotoEntry, type Split, UserError } from "../../contract";
import type { PhotoRecord } from "../../storage/schema";
import { isOwn, PARTS } from "../collect/labels/layout";
import type { Project } from "../project";
import { texts } from "../texts";
import { divide } from "../train/division";

/** The format counts files in two bytes, and bytes in four. */
const MOST = { files: 65_000, gigabytes: 4 };
/** Bytes of the archive that are in the heap at once, about: a blob for each photo would take longer. */
const PART = 4 << 20;
const TABLE = "labels.csv";
/** Names that a folder cannot have on each system, or that would not be a class's there. */
const NO_FOLDER = /[/\\:*?"<>|]|^\.|[. ]$/;

/**
 * Args: the photos of the run in use, if there is one.
 *
 * @throws UserError if there are more photos, or larger ones, than fit into one archive.
 */
export async function photosFile(project: Packed, run: PhotoEntry[] = []): Promise<BlobPart[]> {
  if (project.count > MOST.files) throw new UserError(texts.tooManyToPack(MOST.files));
  const packed: Blob[] = [];
  let chunks: BlobPart[] = [];
  let size = 0;
  const archive = new Zip((error, chunk) => {
    if (error) throw error;
    chunks.push(chunk as BlobPart);
    size += chunk.length;
  });
  const add = (path: string, bytes: Uint8Array) => {
    const entry = new ZipPassThrough(path); // photos are compressed already
    archive.add(entry);
    entry.push(bytes, true);
    if (size < PART) return;
    packed.push(new Blob(chunks)); // which leaves the heap
    chunks = [];
    size = 0;
  };
  const parts = partsOf(project, run);
  const paths = pathsOf(project, parts);
  if (hasTable(project)) add(TABLE, strToU8(tableOf(project, paths, parts)));
  let bytes = 0;
  for (const [path, { id }] of paths) {
    const photo = await project.store.photo(id);
    bytes += photo.size;
    if (bytes > 1e9 * MOST.gigabytes) throw new UserError(texts.tooMuchToPack(MOST.gigabytes));
    add(path, new Uint8Array(await photo.arrayBuffer()));
  }
  archive.end();
  return [...packed, ...chunks];
}

type Photos = Pick<Project, "all" | "classes" | "isTagged" | "of" | "task">;
type Packed = Photos & Pick<Project, "count" | "store">;
/** By the photo's id; null if no photo is held out. */
type Parts = Map<number, Split> | null;

const NAMES = { train: "train", validation: "val" } satisfies Record<Split, string>;

/** As the run in use has divided its photos; and others as the next run will. */
export function partsOf(project: Photos, run: PhotoEntry[] = []): Parts {
  const all = project.all();
  const divided = [...divide(project.task, project.classes, all), ...run];
  const splits = new Map(divided.map(({ id, split }) => [id, split]));
  const parts = new Map(all.map(({ id }) => [id, splits.get(id)!]));
  return [...parts.values()].includes("validation") ? parts : null;
}

/**
 * Whether a table has the labels, and not folders: those of attributes, and of classes whose names are
 * none of folders, or are read as parts, or are equal where capitals are not told apart.
 */
function hasTable({ classes, isTagged }: Photos): boolean {
  const names = classes.map(({ name }) => name.toLowerCase());
  const odd = names.some((name) => NO_FOLDER.test(name) || PARTS.has(name) || !isOwn(name));
  return isTagged || odd || new Set(names).size < names.length;
}

/** A path for each photo: its part, its class and its own name; or its name, where a table has these. */
export function pathsOf(project: Photos, parts: Parts = null): Map<string, PhotoRecord> {
  const paths = new Map<string, PhotoRecord>();
  const taken = new Set<string>(); // without capitals, which not every system tells apart
  const add = (folder: string, photo: PhotoRecord) => {
    const file = photo.name.split("/").at(-1)!;
    let free = file;
    while (taken.has(`${folder}/${free}`.toLowerCase())) free = `${photo.id}-${free}`;
    taken.add(`${folder}/${free}`.toLowerCase());
    paths.set(`${folder}/${free}`, photo);
  };
  if (hasTable(project)) {
    for (const photo of project.all()) add("photos", photo);
    return paths;
  }
  for (const { id, name } of project.classes) {
    for (const photo of project.of(id)) {
      const part = parts ? `${NAMES[parts.get(photo.id)!]}/` : "";
      add(part + name, photo);
    }
  }
  return paths;
}

/** A row for each photo. */
export function tableOf(
  { classes, isTagged }: Photos,
  paths: Map<string, PhotoRecord>,
  parts: Parts = null,
): string {
  const rows = [...paths].map(([path, { id, owners }]) => {
    const part = parts ? [NAMES[parts.get(id)!]] : [];
    const labels = isTagged
      ? classes.map((each) => (owners.includes(each.id) ? "1" : "0"))
      : classes.filter((each) => owners.includes(each.id)).map(({ name }) => name);
    return [path, ...part, ...labels];
  });
  const split = parts ? ["split"] : [];
  const titles = ["file", ...split, ...(isTagged ? classes.map(({ name }) => name) : ["label"])];
  return [titles, ...rows].map((row) => `${row.map(quoted).join(",")}\n`).join("");
}

function quoted(cell: string): string {
  return /[",;\t\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell;
}
