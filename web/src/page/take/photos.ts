/** All photos as a .zip of class folders, as the command line reads them. */
import { Zip, ZipPassThrough } from "fflate";
import { UserError } from "../../contract";
import type { PhotoRecord } from "../../storage/schema";
import type { Project } from "../project";
import { texts } from "../texts";

/** The format counts files in two bytes. */
const MOST = 65_000;

/** @throws UserError if there are more photos than fit into one archive. */
export async function photosFile(project: Project): Promise<BlobPart[]> {
  if (project.count > MOST) throw new UserError(texts.tooManyToPack(MOST));
  const parts: Blob[] = [];
  let chunks: BlobPart[] = [];
  const archive = new Zip((error, chunk) => {
    if (error) throw error;
    chunks.push(chunk as BlobPart);
  });
  for (const [path, { id }] of pathsOf(project)) {
    const entry = new ZipPassThrough(path); // photos are compressed already
    archive.add(entry);
    entry.push(new Uint8Array(await (await project.store.photo(id)).arrayBuffer()), true);
    parts.push(new Blob(chunks)); // which leaves the heap
    chunks = [];
  }
  archive.end();
  return [...parts, ...chunks];
}

/** A path for each photo: its class, its own name, and its part if the user's files had any. */
export function pathsOf(project: Pick<Project, "classes" | "of">): Map<string, PhotoRecord> {
  const paths = new Map<string, PhotoRecord>();
  const divided = project.classes.some(({ id }) =>
    project.of(id).some(({ part }) => part !== null),
  );
  for (const { id, name } of project.classes) {
    for (const photo of project.of(id)) {
      const folder = name.replaceAll(/[/\\:*?"<>|]|^\.+/g, "_");
      const part = photo.part === "validation" ? "val/" : "train/";
      const file = photo.name.split("/").at(-1)!;
      let path = `${divided ? part : ""}${folder}/${file}`;
      if (paths.has(path)) path = path.replace(/[^/]*$/, `${photo.id}-${file}`);
      paths.set(path, photo);
    }
  }
  return paths;
}
