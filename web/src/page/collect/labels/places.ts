/**
 * Where the photos lie that a table lists: as it names them, or in a folder, with a suffix. The
 * rules are those of `pocketune/data/labels/places.py`.
 */
import { UserError } from "../../../contract";
import { texts } from "../../texts";
import { folderOf, PARTS } from "./layout";

const PHOTO = /\.(jpe?g|jfif|png|webp|gif|bmp|avif|tiff?|hei[cf]|p[bgpn]m)$/i;

/** What a cell lacks of a file's name: `train/` before it and `.jpg` behind it. */
interface Place {
  folder: string;
  suffix: string;
}

/** Finds the photos of a table by its cells: in the table's folder and below. */
export class Places {
  readonly #table: string;
  /** All photos, by their paths in the table's folder. */
  readonly #photos: Set<string>;
  /** Those that the cells have, the last one that was used first; empty for none. */
  #places: Place[] = [];

  constructor(table: string, paths: string[]) {
    this.#table = table;
    const above = folderOf(table) && `${folderOf(table)}/`;
    const inside = paths.filter((path) => path.startsWith(above) && PHOTO.test(path));
    this.#photos = new Set(inside.map((path) => path.slice(above.length)));
  }

  /** Whether most cells of each column name photos, each another one. */
  arePhotos(columns: string[][]): boolean[] {
    const found = this.#found(columns.flat());
    return columns.map((cells) => {
      const named = cells.filter((cell) => found.has(cell) || this.#photos.has(tidy(cell)));
      return new Set(cells).size === cells.length && 2 * named.length > cells.length;
    });
  }

  /** Whether a cell is the name of a photo, as it is. */
  hasAny(cells: string[]): boolean {
    return cells.some((cell) => cell && this.#photos.has(tidy(cell)));
  }

  /**
   * Find out what these cells lack of the names of photos, as others of their column will.
   *
   * @throws UserError if a cell may stand for two photos.
   */
  learn(cells: string[]): void {
    const places = new Map<string, Place>();
    for (const [cell, found] of this.#found(cells)) {
      const place = this.#chosen(cell, found);
      places.set(`${place.folder}\n${place.suffix}`, place);
    }
    this.#places = [...places.values()];
  }

  /** The photo that a cell names, relative to the table's folder. */
  of(cell: string): string {
    const name = tidy(cell);
    for (const [index, place] of this.#places.entries()) {
      const full = place.folder + name + place.suffix;
      if (this.#places.length > 1 && !this.#photos.has(full)) continue;
      this.#places.unshift(...this.#places.splice(index, 1)); // the next is likely there, too
      return full;
    }
    return name;
  }

  /** The places of the photos that these cells may name, in one pass over all photos. */
  #found(cells: string[]): Map<string, Place[]> {
    const wanted = new Map<string, string[]>();
    for (const cell of new Set(cells)) {
      const name = tidy(cell).split("/").at(-1)!;
      wanted.set(name, [...(wanted.get(name) ?? []), cell]);
    }
    const found = new Map<string, Place[]>();
    for (const name of this.#photos) {
      const suffix = PHOTO.exec(name)![0];
      for (const rest of ["", suffix]) {
        const path = name.slice(0, name.length - rest.length);
        for (const cell of wanted.get(path.split("/").at(-1)!) ?? []) {
          if (!`/${path}`.endsWith(`/${tidy(cell)}`)) continue;
          const folder = path.slice(0, path.length - tidy(cell).length);
          found.set(cell, [...(found.get(cell) ?? []), { folder, suffix: rest }]);
        }
      }
    }
    return found;
  }

  /** The place of a cell; photos to test, or of another table's name, are not meant. */
  #chosen(cell: string, places: Place[]): Place {
    const stem = stemOf(this.#table);
    const top = ({ folder }: Place) => folder.split("/")[0]!.toLowerCase();
    for (const meant of [
      places.filter((place) => top(place).startsWith(stem)),
      places.filter((place) => !isTest(top(place))),
      places,
    ]) {
      if (meant.length === 1) return meant[0]!;
    }
    const [one, other] = places.map(({ folder, suffix }) => folder + tidy(cell) + suffix);
    throw new UserError(texts.table.twoPhotos(this.#table, cell, one!, other!));
  }
}

/** A path in a table or an archive, with forward slashes and without detours. */
export function tidy(cell: string): string {
  const parts: string[] = [];
  for (const part of cell.replaceAll("\\", "/").split("/")) {
    if (part === ".." && parts.length && parts.at(-1) !== "..") parts.pop();
    else if (part && part !== ".") parts.push(part);
  }
  return parts.join("/");
}

/** The name of a file without folder and suffix, in lower case. */
export function stemOf(path: string): string {
  return path
    .split("/")
    .at(-1)!
    .replace(/\.[^.]*$/, "")
    .toLowerCase();
}

/** Whether a folder such as `test_images` is of photos to test. */
function isTest(folder: string): boolean {
  return [...PARTS].some(([name, part]) => part === "test" && folder.startsWith(name));
}
