/** The attributes in the rows of a table, by the rules of pocketune/tasks/attributes.py. */
import { UserError } from "../../../contract";
import { texts } from "../../texts";

const PRESENT = ["1", "1.0", "yes", "true"];
const ABSENT = ["0", "0.0", "no", "false"];
const MINUS = "-1";

/** Whether a cell says if a photo has an attribute. */
export function isAttribute(cell: string): boolean {
  return [...PRESENT, ...ABSENT, MINUS].includes(cell.toLowerCase());
}

/** The attributes that a photo has, from the cells of its row, and the row's number for messages. */
export type ReadRow = (row: string[], line: number) => string[];

export interface AttributeColumns {
  names: string[];
  read: ReadRow;
}

/**
 * Args: the titles of all columns; the places of those that are neither file nor split; the table's
 * name.
 *
 * @throws UserError if two have one name, or one has none.
 */
export function attributeColumns(
  titles: string[],
  free: number[],
  table: string,
): AttributeColumns {
  const names = free.map((place) => titles[place]!.normalize("NFC"));
  names.forEach((name, i) => {
    if (!name) throw new UserError(texts.table.noTitle(table, free[i]! + 1));
    if (names.indexOf(name) < i) throw new UserError(texts.table.sameTitle(table, name));
  });
  const ways = new Set<string>();
  const read: ReadRow = (row, line) => {
    if (row.slice(titles.length).some(Boolean))
      throw new UserError(texts.table.longRow(table, line));
    return names.filter((name, i) => {
      const value = row[free[i]!] ?? "";
      if (!value) throw new UserError(texts.table.noValue(table, name, line));
      if (!isAttribute(value)) {
        throw new UserError(texts.table.value(table, value, name, line));
      }
      const isPresent = PRESENT.includes(value.toLowerCase());
      if (!isPresent) ways.add(value === MINUS ? MINUS : "0");
      if (ways.size > 1) throw new UserError(texts.table.twoWays(table));
      return isPresent;
    });
  };
  return { names, read };
}
