/**
 * The photos that tables list, and which tables those are. The rules are those of
 * `pocketune/data/labels/tables.py` and `listings.py`.
 */
import { UserError } from "../../../contract";
import { texts } from "../../texts";
import { columnsOf, namesFiles, titlesOf } from "./columns";
import { type Found, folderOf, foldersOf, inUse, type Layout, ofClasses, partOf } from "./layout";
import { Places, stemOf, tidy } from "./places";
import { isJsonLines, isTable, readRows, type Row } from "./rows";

/** A table's path and its rows. */
export interface Table {
  path: string;
  rows: Row[];
}

/** Names of the table of the labels, where there are others beside it, without the suffix. */
const LABELS = ["labels", "train_labels", "trainlabels", "list_attr_celeba"];
/** As in Python. */
const MOST_BYTES = 128 << 20;
/** Rows that show whether files lie where a table says. */
const FEW = 8;
/** Most rows, from all over a table, that show where its files lie if not. */
const SAMPLE = 64;

/**
 * The tables that list the photos of a folder; none if it is not certain.
 *
 * It is the one table beside all folders, or in the one folder of all files. Of several, it is
 * `labels.csv`, or `train.csv` with those of other parts that have the same columns, or the only
 * one with a title of the column of files. Otherwise it is the one of each folder of a part, as
 * `train/metadata.jsonl`.
 *
 * Args: all paths; the folder around everything, with its slash; and how to read a table.
 */
export async function chooseTables(
  paths: string[],
  prefix: string,
  read: (path: string) => Promise<Table>,
): Promise<Table[]> {
  const tables = paths.filter(isTable);
  const above = tables.filter((path) => !path.slice(prefix.length).includes("/"));
  const plain = above.filter((path) => !isJsonLines(path));
  const beside = plain.length ? plain : above;
  if (beside.length > 1) return mainTables(beside, read);
  if (beside.length || (tables.length === 1 && foldersOf(paths).length === 1)) {
    return Promise.all((beside.length ? beside : tables).map(read));
  }
  const place = (path: string) => folderOf(path).slice(prefix.length).toLowerCase();
  const inside = tables.filter((path) => partOf(place(path)) !== null);
  const areAlone = new Set(inside.map(place)).size === inside.length;
  return areAlone ? Promise.all(inside.map(read)) : [];
}

async function mainTables(
  paths: string[],
  read: (path: string) => Promise<Table>,
): Promise<Table[]> {
  const labels = paths.filter((path) => LABELS.includes(stemOf(path)));
  const train = paths.filter((path) => partOf(stemOf(path)) === "train");
  const named = labels.length + train.length;
  if (!named) {
    // others may be results, of an evaluation for example
    const listing = (await Promise.all(paths.map(read))).filter(({ rows }) => namesFiles(rows));
    return listing.length === 1 ? listing : [];
  }
  if (named > 1) return [];
  if (labels.length) return Promise.all(labels.map(read));
  const parts = await Promise.all(paths.filter((path) => partOf(stemOf(path))).map(read));
  const titles = titlesOf(parts.find(({ path }) => path === train[0])!.rows);
  return parts.filter(({ rows }) => titlesOf(rows) === titles);
}

/**
 * Read the photos that tables list: one table, or one of each part.
 *
 * @throws UserError if one is no table of photos, or the tables have different columns.
 */
export function byTables(tables: Table[], paths: string[]): Layout {
  const known = new Set(paths);
  const found = new Map<string, Found>();
  let attributes: string[] | null | undefined;
  for (const table of tables) {
    const part = partOf(stemOf(table.path)) ?? partOf(folderOf(table.path).split("/").at(-1));
    const read = byTable(table, paths, tables.length > 1 ? part : null);
    if (attributes !== undefined && String(read.attributes) !== String(attributes)) {
      throw new UserError(texts.table.differ(tables[0]!.path, table.path));
    }
    attributes = read.attributes;
    for (const each of read.found) {
      if (each.part === "test") continue; // no run sees these
      const before = found.get(each.path);
      if (
        before &&
        (before.labels.join("\n") !== each.labels.join("\n") || before.part !== each.part)
      ) {
        throw new UserError(texts.table.twice(table.path, each.path));
      }
      if (known.has(each.path)) found.set(each.path, each);
    }
  }
  if (!found.size) throw new UserError(texts.table.noneGiven(tables[0]!.path));
  const labeled = inUse([...found.values()]);
  return attributes ? { task: "attributes", classes: attributes, labeled } : ofClasses(labeled);
}

/** The photos of a table, and the names of its attributes; null for classes. */
function byTable({ path, rows }: Table, paths: string[], part: Found["part"]) {
  if (!rows.length) throw new UserError(texts.table.empty(path));
  const places = new Places(path, paths);
  const columns = columnsOf(rows, path, places);
  const listed = columns.titled ? rows.slice(1) : rows;
  const files = listed.map(({ cells }) => cells[columns.file] ?? "");
  const asTold = places.hasAny(files.slice(0, FEW));
  if (!asTold) places.learn(spread(files));
  const found = listed.map(({ line, cells }, index): Found => {
    if (!files[index]) throw new UserError(texts.table.noFile(path, line));
    const labels = columns.read(cells, line);
    const name = asTold ? tidy(files[index]) : places.of(files[index]);
    const split = columns.split < 0 ? part : splitOf(cells[columns.split] ?? "", path, line);
    return { path: tidy(`${folderOf(path)}/${name}`), labels, part: split };
  });
  return { found, attributes: columns.attributes };
}

function splitOf(text: string, table: string, line: number): Found["part"] {
  const part = partOf(text);
  if (part === null) throw new UserError(texts.table.split(table, text, line));
  return part;
}

/** Some of the cells, equally far from each other. */
function spread(cells: string[]): string[] {
  const stride = Math.max(1, Math.ceil(cells.length / SAMPLE));
  return cells.filter((cell, index) => cell && index % stride === 0);
}

/** The text of a table as rows. */
export async function readTable(path: string, file: Blob): Promise<Table> {
  if (file.size > MOST_BYTES) throw new UserError(texts.table.tooLarge(path, MOST_BYTES >> 20));
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw new UserError(texts.table.noText(path));
  }
  return { path, rows: readRows(text, path) };
}
