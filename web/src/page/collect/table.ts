/** A CSV as rows of cells: comma, semicolon or tab; cells may be quoted. */

/** The rows that are not blank, with cells without surrounding spaces. */
export function parseTable(text: string): string[][] {
  const body = text.replace(/^\uFEFF/, "");
  const first = body.slice(0, lineEnd(body));
  const separator = [",", ";", "\t"].reduce((a, b) => (count(first, b) > count(first, a) ? b : a));
  const rows: string[][] = [];
  let row: string[] = [];
  let cell = "";
  let quoted = false;
  const endRow = () => {
    row.push(cell.trim());
    if (row.some(Boolean)) rows.push(row);
    row = [];
    cell = "";
  };
  for (let i = 0; i < body.length; i++) {
    const character = body[i]!;
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
    } else if (character === "\n" || character === "\r") endRow();
    else cell += character;
  }
  endRow();
  return rows;
}

/** The list of attributes of CelebA, whose first line is a number and whose second has the titles. */
export function parseCelebA(text: string): string[][] {
  const [, titles = [], ...rows] = text
    .split(/\r?\n/)
    .map((line) => line.split(/\s+/).filter(Boolean))
    .filter((cells) => cells.length);
  return [["file", ...titles], ...rows];
}

function lineEnd(text: string): number {
  const end = text.search(/[\r\n]/);
  return end < 0 ? text.length : end;
}

function count(text: string, character: string): number {
  return text.split(character).length - 1;
}
