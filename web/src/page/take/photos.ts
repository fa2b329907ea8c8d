/**
 * All photos as a .zip of class folders, or with a table of attributes, as the command line reads them.
 * They are divided as the run divided them, so that `pocketune evaluate` scores those it held out.
 */
import { strToU8, Zip, ZipPassThrough } from "fflate";
import { type PhotoEntry, type Split, UserError } from "../../contract";
import type { PhotoRecord } from "../../storage/schema";
import type { Project } from "../project";
import { texts } from "../texts";
import { divide } from "../train/division";

/** The format counts files in two bytes. */
const MOST = 65_000;
const TABLE = "attributes.csv";

/**
 * Args: the photos of the run in use, if there is one.
 *
 * @throws UserError if there are more photos than fit into one archive.
 */
export async function photosFile(project: Packed, run: PhotoEntry[] = []): Promise<BlobPart[]> {
  if (project.count > MOST) throw new UserError(texts.tooManyToPack(MOST));
  const packed: Blob[] = [];
  let chunks: BlobPart[] = [];
  const archive = new Zip((error, chunk) => {
    if (error) throw error;
    chunks.push(chunk as BlobPart);
  });
  const add = (path: string, bytes: Uint8Array) => {
    const entry = new ZipPassThrough(path); // photos are compressed already
    archive.add(entry);
    entry.push(bytes, true);
    packed.push(new Blob(chunks)); // which leaves the heap
    chunks = [];
  };
  const parts = partsOf(project, run);
  const paths = pathsOf(project, parts);
  if (project.isTagged) add(TABLE, strToU8(tableOf(project, paths, parts)));
  for (const [path, { id }] of paths) {
    add(path, new Uint8Array(await (await project.store.photo(id)).arrayBuffer()));
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

/** A path for each photo: its part, its class and its own name. */
export function pathsOf(project: Photos, parts: Parts = null): Map<string, PhotoRecord> {
  const paths = new Map<string, PhotoRecord>();
  const add = (folder: string, photo: PhotoRecord) => {
    const file = photo.name.split("/").at(-1)!;
    let path = `${folder}/${file}`;
    if (paths.has(path)) path = `${folder}/${photo.id}-${file}`;
    paths.set(path, photo);
  };
  if (project.isTagged) {
    for (const photo of project.all()) add("photos", photo);
    return paths;
  }
  for (const { id, name } of project.classes) {
    for (const photo of project.of(id)) {
      const part = parts ? `${NAMES[parts.get(photo.id)!]}/` : "";
      add(`${part}${name.replaceAll(/[/\\:*?"<>|]|^\.+/g, "_")}`, photo);
    }
  }
  return paths;
}

/** A row for each photo. */
export function tableOf(
  { classes }: Photos,
  paths: Map<string, PhotoRecord>,
  parts: Parts = null,
): string {
  const rows = [...paths].map(([path, { id, owners }]) => {
    const part = parts ? [NAMES[parts.get(id)!]] : [];
    return [path, ...part, ...classes.map((each) => (owners.includes(each.id) ? "1" : "0"))];
  });
  const split = parts ? ["split"] : [];
  const titles = ["file", ...split, ...classes.map(({ name }) => name)];
  return [titles, ...rows].map((row) => `${row.map(quoted).join(",")}\n`).join("");
}

function quoted(cell: string): string {
  return /[",;\t\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell;
}
