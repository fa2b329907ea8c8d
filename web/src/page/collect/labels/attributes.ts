/** The attributes in the rows of a table, by the rules of pocketune/tasks/attributes.py. */
import { UserError } from "../../../contract";
import { texts } from "../../texts";

const VALUES = ["0", "1", "-1"];

/** Whether a cell says if a photo has an attribute. */
export function isAttribute(cell: string): boolean {
  return VALUES.includes(cell);
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
  const seen = new Set<string>();
  const read: ReadRow = (row, line) => {
    if (row.slice(titles.length).some(Boolean))
      throw new UserError(texts.table.longRow(table, line));
    return names.filter((name, i) => {
      const value = row[free[i]!] ?? "";
      if (!value) throw new UserError(texts.table.noValue(table, name, line));
      if (!isAttribute(value)) {
        throw new UserError(texts.table.value(table, value, name, line));
      }
      seen.add(value);
      if (seen.has("0") && seen.has("-1")) throw new UserError(texts.table.twoWays(table));
      return value === "1";
    });
  };
  return { names, read };
}
