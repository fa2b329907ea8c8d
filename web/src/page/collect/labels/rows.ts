/** The lines of tables: of a CSV, of JSON lines, and of CelebA's list of attributes. */
import { UserError } from "../../../contract";
import { dumpJson, type Json, Num, parseJson } from "../../../formats/json";
import { texts } from "../../texts";

export interface Row {
  /** Its number in the file, from 1. */
  line: number;
  /** Without surrounding spaces. */
  cells: string[];
}

/** Cells in quotes, whose separators are text, with what is before each. */
const QUOTED = /(^|[,;\t]) *"(?:[^"]|"")*(?:"|$)/g;

/** The first line of a CSV of Excel. */
const SEPARATOR = /^sep=([,;\t])$/i;

const CELEBA = "list_attr_celeba.txt";

/** Whether a file is a CSV, a TSV or JSON lines by its name, or CelebA's list of attributes. */
export function isTable(path: string): boolean {
  return /\.([ct]sv|jsonl)$/i.test(path) || isCelebA(path);
}

export function isJsonLines(path: string): boolean {
  return /\.jsonl$/i.test(path);
}

/**
 * The lines that are not blank; titles come first.
 *
 * @throws UserError if the text is not a table.
 */
export function readRows(text: string, table: string): Row[] {
  const body = text.replace(/^\uFEFF/, "");
  if (isCelebA(table)) return readCelebA(body, table);
  return isJsonLines(table) ? readJsonLines(body, table) : readCsv(body);
}

function isCelebA(path: string): boolean {
  return path.split("/").at(-1) === CELEBA;
}

/** A CSV: comma, semicolon or tab; cells may be quoted. A line is that of a row's end. */
function readCsv(body: string): Row[] {
  const head = body.slice(0, lineEnd(body));
  const named = SEPARATOR.exec(head);
  const first = head.replace(QUOTED, "$1");
  const separator =
    named?.[1] ?? [",", ";", "\t"].reduce((a, b) => (count(first, b) > count(first, a) ? b : a));
  const rows: Row[] = [];
  let line = 1;
  let row: string[] = [];
  let cell = "";
  let quoted = false;
  const endRow = () => {
    row.push(cell.trim());
    if (row.some(Boolean)) rows.push({ line, cells: row });
    row = [];
    cell = "";
  };
  for (let i = named ? head.length : 0; i < body.length; i++) {
    const character = body[i]!;
    const ends = character === "\n" || (character === "\r" && body[i + 1] !== "\n");
    if (quoted) {
      if (character !== '"') cell += character;
      else if (body[i + 1] === '"') cell += body[++i]!;
      else quoted = false;
    } else if (character === '"' && !cell.trim()) {
      quoted = true;
      cell = "";
    } else if (character === separator) {
      row.push(cell.trim());
      cell = "";
    } else if (ends) endRow();
    else cell += character;
    if (ends) line++;
  }
  endRow();
  return rows;
}

/** The members of each line's object, as cells; the names in the first line are the titles. */
function readJsonLines(body: string, table: string): Row[] {
  const rows: Row[] = [];
  let titles: string[] | null = null;
  for (const [index, text] of body.split("\n").entries()) {
    const line = index + 1;
    if (!text.trim()) continue;
    const record = asObject(text);
    if (!record) throw new UserError(texts.table.noObject(table, line));
    if (!titles) {
      titles = [...record.keys()];
      rows.push({ line, cells: titles });
    }
    rows.push({ line, cells: titles.map((title) => asCell(record.get(title))) });
  }
  return rows;
}

function asObject(text: string): Map<string, Json> | null {
  try {
    const value = parseJson(text);
    return value instanceof Map ? value : null;
  } catch {
    return null;
  }
}

/** A value as Python prints it; nothing for lists and objects, which are not labels. */
function asCell(value: Json | undefined): string {
  if (typeof value === "boolean") return value ? "1" : "0";
  if (value instanceof Num) return dumpJson(value);
  return typeof value === "string" ? value.trim() : "";
}

/** CelebA's list, whose first line is the number of photos and whose second has the titles. */
function readCelebA(body: string, table: string): Row[] {
  const rows = body.split(/\r?\n/).flatMap((text, index) => {
    const cells = text.split(/\s+/).filter(Boolean);
    return cells.length ? [{ line: index + 1, cells }] : [];
  });
  const [number, titles, ...rest] = rows;
  if (number?.cells.length !== 1 || !/^\d+$/.test(number.cells[0]!) || !titles) {
    throw new UserError(texts.table.celebA(table));
  }
  return [{ line: titles.line, cells: ["file", ...titles.cells] }, ...rest];
}

function lineEnd(text: string): number {
  const end = text.search(/[\r\n]/);
  return end < 0 ? text.length : end;
}

function count(text: string, character: string): number {
  return text.split(character).length - 1;
}
