/** All photos as a .zip of class folders, or with a table of attributes, as the command line reads them. */
import { strToU8, Zip, ZipPassThrough } from "fflate";
import { UserError } from "../../contract";
import type { PhotoRecord } from "../../storage/schema";
import type { Project } from "../project";
import { texts } from "../texts";

/** The format counts files in two bytes. */
const MOST = 65_000;
const TABLE = "attributes.csv";

/** @throws UserError if there are more photos than fit into one archive. */
export async function photosFile(project: Project): Promise<BlobPart[]> {
  if (project.count > MOST) throw new UserError(texts.tooManyToPack(MOST));
  const parts: Blob[] = [];
  let chunks: BlobPart[] = [];
  const archive = new Zip((error, chunk) => {
    if (error) throw error;
    chunks.push(chunk as BlobPart);
  });
  const add = (path: string, bytes: Uint8Array) => {
    const entry = new ZipPassThrough(path); // photos are compressed already
    archive.add(entry);
    entry.push(bytes, true);
    parts.push(new Blob(chunks)); // which leaves the heap
    chunks = [];
  };
  const paths = pathsOf(project);
  if (project.isTagged) add(TABLE, strToU8(tableOf(project, paths)));
  for (const [path, { id }] of paths) {
    add(path, new Uint8Array(await (await project.store.photo(id)).arrayBuffer()));
  }
  archive.end();
  return [...parts, ...chunks];
}

type Photos = Pick<Project, "all" | "classes" | "isTagged" | "of">;

/** A path for each photo: its class, its own name, and its part if the user's files had any. */
export function pathsOf(project: Photos): Map<string, PhotoRecord> {
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
  const divided = isDivided(project);
  for (const { id, name } of project.classes) {
    for (const photo of project.of(id)) {
      const part = photo.part === "validation" ? "val/" : "train/";
      add(`${divided ? part : ""}${name.replaceAll(/[/\\:*?"<>|]|^\.+/g, "_")}`, photo);
    }
  }
  return paths;
}

/** A row for each photo; its part is in it if the user's files had any. */
export function tableOf(project: Photos, paths: Map<string, PhotoRecord>): string {
  const divided = isDivided(project);
  const part = (photo: PhotoRecord | null) => {
    if (!divided) return [];
    return photo ? [photo.part === "validation" ? "val" : "train"] : ["split"];
  };
  const { classes } = project;
  const rows = [...paths].map(([path, photo]) => {
    const values = classes.map(({ id }) => (photo.owners.includes(id) ? "1" : "0"));
    return [path, ...part(photo), ...values];
  });
  const titles = ["file", ...part(null), ...classes.map(({ name }) => name)];
  return [titles, ...rows].map((row) => `${row.map(quoted).join(",")}\n`).join("");
}

function quoted(cell: string): string {
  return /[",;\t\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell;
}

function isDivided(project: Photos): boolean {
  return project.all().some(({ part }) => part !== null);
}
