/**
 * Which columns of a table name photos, their labels and their division. The rules are those of
 * `pocketune/data/labels/columns.py`.
 */
import { UserError } from "../../../contract";
import { texts } from "../../texts";
import { attributeColumns, isAttribute, type ReadRow } from "./attributes";
import { partOf } from "./layout";
import type { Places } from "./places";
import type { Row } from "./rows";

const FILES = ["file", "filename", "file_name", "path", "image", "image_id"];
const SPLIT = "split";
/** Titles of the column of parts if its cells are their names. */
const LIKE_SPLIT = ["set", "data_set", "subset", "partition"];
const LABELS = ["label", "class"];
const MASK = "mask";
/** Rows that show which columns name photos. */
const FEW = 8;

export interface Columns {
  file: number;
  /** -1 if there is none. */
  split: number;
  /** Whether the first line has titles, and not a file and its label. */
  titled: boolean;
  /** The names of attributes; null for classes. */
  attributes: string[] | null;
  read: ReadRow;
}

type Labels = Pick<Columns, "attributes" | "read">;

/**
 * The columns of a table. The column of the photos has one of the titles above. Without one, it is
 * the only one whose cells name photos. Where one column is left, it holds classes.
 *
 * @throws UserError if there are no such columns, or more than one.
 */
export function columnsOf(rows: Row[], table: string, places: Places): Columns {
  const first = rows[0]!.cells;
  const file = fileColumn(first);
  const found =
    (file >= 0 ? titled(rows, file, table) : null) ??
    (first.length === 2 && first[0]!.includes(".") // a file name, not a title
      ? untitled(table)
      : byPhotos(rows, table, places));
  if (!found) throw new UserError(texts.table.columns(table, first.join(", ").slice(0, 80)));
  return found;
}

/** The titles of a table, if they name its photos; they tell whether two tables are alike. */
export function titlesOf(rows: Row[]): string {
  return (rows[0]?.cells ?? []).join("\n");
}

/** Whether the titles of a table have one of the column of files. */
export function namesFiles(rows: Row[]): boolean {
  return fileColumn(rows[0]?.cells ?? []) >= 0;
}

function fileColumn(first: string[]): number {
  const titles = plain(first);
  return titles.indexOf(FILES.find((title) => titles.includes(title)) ?? "\n");
}

/** The columns of a table whose column of files is known. */
function titled(rows: Row[], file: number, table: string): Columns | null {
  const first = rows[0]!.cells;
  const split = splitColumn(rows);
  const free = [...first.keys()].filter((place) => place !== file && place !== split);
  const labels = labelsOf(rows, free, table);
  return labels && { file, split, titled: true, ...labels };
}

/** The column of the parts; -1 if there is none. */
function splitColumn(rows: Row[]): number {
  const titles = plain(rows[0]!.cells);
  if (titles.includes(SPLIT)) return titles.indexOf(SPLIT);
  const sample = rows.slice(1, 1 + FEW);
  return titles.findIndex((title, place) => {
    const cells = sample.flatMap((row) => row.cells[place] || []);
    return LIKE_SPLIT.includes(title) && cells.length > 0 && cells.every(partOf);
  });
}

function labelsOf(rows: Row[], free: number[], table: string): Labels | null {
  const titles = rows[0]!.cells;
  const named = (name: string) => free.find((place) => titles[place]!.toLowerCase() === name);
  const label = LABELS.map(named).find((place) => place !== undefined);
  if (label !== undefined) return classes(label, table);
  if (!free.length || named(MASK) !== undefined) return null;
  const values = () => rows.slice(1).flatMap(({ cells }) => cells[free[0]!] || []);
  if (free.length === 1 && !values().every(isAttribute)) return classes(free[0]!, table);
  const { names, read } = attributeColumns(titles, free, table);
  return { attributes: names, read };
}

function classes(place: number, table: string): Labels {
  const read: ReadRow = (row, line) => {
    const found = row[place];
    if (!found) throw new UserError(texts.table.noLabel(table, line));
    return [found.normalize("NFC")];
  };
  return { attributes: null, read };
}

function untitled(table: string): Columns {
  return { file: 0, split: -1, titled: false, ...classes(1, table) };
}

/** The columns of a table without a known title of files, by the photos that its cells name. */
function byPhotos(rows: Row[], table: string, places: Places): Columns | null {
  const first = rows[0]!.cells;
  const sample = rows.slice(1, 1 + FEW);
  const taken = [SPLIT, MASK, ...LABELS];
  const titles = plain(first);
  const free = [...first.keys()].filter((place) => !taken.includes(titles[place]!));
  const named = places.arePhotos(
    free.map((place) => sample.flatMap(({ cells }) => cells[place] || [])),
  );
  const found = free.filter((_, index) => named[index]);
  if (found.length > 1) {
    const [one, other] = found.map((place) => first[place]!);
    throw new UserError(texts.table.twoFiles(table, one!, other!));
  }
  const file = found[0];
  if (file === undefined) return null;
  if (places.arePhotos([[first[file]!]])[0]) return first.length === 2 ? untitled(table) : null;
  return titled(rows, file, table);
}

function plain(first: string[]): string[] {
  return first.map((cell) => cell.toLowerCase().replaceAll(" ", "_"));
}
