/**
 * JSON as Python reads and writes it. Checksums of files are taken of JSON that Python wrote, in
 * which `1` and `1.0` are different texts and the order of keys matters; JavaScript's own parser
 * keeps neither.
 */

/** A number as a file spells it: Python prints a float as `1.0` and an int as `1`. */
export class Num {
  constructor(
    readonly value: number,
    /** Whether Python reads it as a float. */
    readonly float: boolean,
    /** An int of any size, in decimal. */
    readonly text: string = String(value),
  ) {}
}

/** A float, for values that Python has as such, whole ones too. */
export const float = (value: number): Num => new Num(value, true);

export type Json = null | boolean | string | number | Num | Json[] | Map<string, Json>;

/** Most levels of lists and objects; Python's own limit is some hundreds. */
const DEEPEST = 200;
const SPACE = /[ \t\n\r]*/y;
const NUMBER = /-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?/y;
// eslint-disable-next-line no-control-regex
const PLAIN = /[^"\\\u0000-\u001f]*/y;
const ESCAPES: Record<string, string> = {
  '"': '"',
  "\\": "\\",
  "/": "/",
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
};

/** Reads a text; numbers become `Num`, objects maps in the order of the text. Throws Error. */
export function parseJson(text: string): Json {
  const reader = new Reader(text);
  const value = reader.value(0);
  reader.end();
  return value;
}

/** The text in UTF-8. Throws Error if it is none, or no JSON. */
export function decodeJson(bytes: Uint8Array): Json {
  return parseJson(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes));
}

class Reader {
  private place = 0;

  constructor(private readonly text: string) {}

  value(depth: number): Json {
    if (depth > DEEPEST) throw this.error("more than " + DEEPEST + " levels");
    this.match(SPACE);
    const next = this.text[this.place];
    if (next === "{") return this.object(depth);
    if (next === "[") return this.list(depth);
    if (next === '"') return this.string();
    for (const [word, value] of [
      ["null", null],
      ["true", true],
      ["false", false],
    ] as const) {
      if (this.text.startsWith(word, this.place)) {
        this.place += word.length;
        return value;
      }
    }
    return this.number();
  }

  end(): void {
    this.match(SPACE);
    if (this.place < this.text.length) throw this.error("something behind the end");
  }

  private number(): Num {
    const found = this.match(NUMBER);
    if (!found) throw this.error("no value");
    const value = Number(found[0]);
    const isFloat = found[1] !== undefined || found[2] !== undefined;
    return new Num(value, isFloat, found[0]);
  }

  private string(): string {
    this.place += 1;
    let found = "";
    for (;;) {
      found += this.match(PLAIN)![0];
      const next = this.text[this.place++];
      if (next === '"') return found;
      if (next !== "\\") throw this.error("a text without an end");
      const code = this.text[this.place++] ?? "";
      if (code === "u") {
        const digits = this.text.slice(this.place, this.place + 4);
        if (!/^[0-9a-fA-F]{4}$/.test(digits)) throw this.error("a broken character");
        found += String.fromCharCode(parseInt(digits, 16));
        this.place += 4;
      } else {
        const plain = ESCAPES[code];
        if (plain === undefined) throw this.error("a broken character");
        found += plain;
      }
    }
  }

  private list(depth: number): Json[] {
    const found: Json[] = [];
    this.place += 1;
    if (this.ends("]")) return found;
    for (;;) {
      found.push(this.value(depth + 1));
      if (this.ends("]")) return found;
      this.expect(",");
    }
  }

  private object(depth: number): Map<string, Json> {
    const found = new Map<string, Json>();
    this.place += 1;
    if (this.ends("}")) return found;
    for (;;) {
      this.match(SPACE);
      if (this.text[this.place] !== '"') throw this.error("no name of a field");
      const name = this.string();
      this.match(SPACE);
      this.expect(":");
      found.set(name, this.value(depth + 1));
      if (this.ends("}")) return found;
      this.expect(",");
    }
  }

  private ends(sign: string): boolean {
    this.match(SPACE);
    if (this.text[this.place] !== sign) return false;
    this.place += 1;
    return true;
  }

  private expect(sign: string): void {
    if (this.text[this.place] !== sign) throw this.error(`no '${sign}'`);
    this.place += 1;
  }

  private match(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.place;
    const found = pattern.exec(this.text);
    if (found) this.place += found[0].length;
    return found;
  }

  private error(what: string): Error {
    return new Error(`${what} at character ${this.place}`);
  }
}

export interface Style {
  /** Keys in the order of their characters, as `sort_keys` of Python has it. */
  sorted?: boolean;
  /** Spaces of each level; without it, all is one line. */
  indent?: number;
  /** Other characters than ASCII as they are, not as escapes. */
  unicode?: boolean;
}

/** The text that `json.dumps` writes. Plain JavaScript numbers are ints if they are whole. */
export function dumpJson(value: Json, style: Style = {}): string {
  return dump(value, style, "\n");
}

function dump(value: Json, style: Style, line: string): string {
  if (value === null || typeof value === "boolean") return String(value);
  if (typeof value === "string") return quoted(value, style.unicode ?? false);
  if (typeof value === "number") return dumpNumber(new Num(value, !Number.isInteger(value)));
  if (value instanceof Num) return dumpNumber(value);
  const inner = style.indent === undefined ? line : line + " ".repeat(style.indent);
  if (Array.isArray(value)) {
    const items = value.map((item) => dump(item, style, inner));
    return bracketed("[", items, "]", style, line, inner);
  }
  const keys = [...value.keys()];
  if (style.sorted) keys.sort(byCharacters);
  const items = keys.map((key) => {
    const name = quoted(key, style.unicode ?? false);
    return `${name}: ${dump(value.get(key)!, style, inner)}`;
  });
  return bracketed("{", items, "}", style, line, inner);
}

function bracketed(
  open: string,
  items: string[],
  close: string,
  style: Style,
  line: string,
  inner: string,
): string {
  if (!items.length) return open + close;
  if (style.indent === undefined) return open + items.join(", ") + close;
  return open + inner + items.join("," + inner) + line + close;
}

function dumpNumber(number: Num): string {
  return number.float ? reprFloat(number.value) : number.text;
}

/** A float as Python prints it: the fewest digits that give it back. */
export function reprFloat(value: number): string {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "Infinity" : "-Infinity";
  const [digits, power] = value.toExponential().split("e") as [string, string];
  const exponent = Number(power);
  if (exponent < -4 || exponent >= 16) {
    const sign = exponent < 0 ? "-" : "+";
    return `${digits}e${sign}${String(Math.abs(exponent)).padStart(2, "0")}`;
  }
  const sign = Object.is(value, -0) ? "-" : "";
  const text = sign + plainDecimal(value, exponent);
  return text.includes(".") ? text : text + ".0";
}

/** JavaScript writes all of these without an exponent except small ones. */
function plainDecimal(value: number, exponent: number): string {
  const text = String(value);
  if (!text.includes("e")) return text;
  const digits = value.toExponential().split("e")[0]!.replace("-", "").replace(".", "");
  return (value < 0 ? "-" : "") + "0." + "0".repeat(-exponent - 1) + digits;
}

const SHORT: Record<string, string> = {
  '"': '\\"',
  "\\": "\\\\",
  "\n": "\\n",
  "\r": "\\r",
  "\t": "\\t",
  "\b": "\\b",
  "\f": "\\f",
};

function quoted(text: string, unicode: boolean): string {
  // eslint-disable-next-line no-control-regex
  const special = unicode ? /["\\\u0000-\u001f]/g : /["\\]|[^ -~]/g;
  const escape = (sign: string) => "\\u" + sign.charCodeAt(0).toString(16).padStart(4, "0");
  return '"' + text.replace(special, (sign) => SHORT[sign] ?? escape(sign)) + '"';
}

/** The order of Python's texts: by characters, where JavaScript compares halves of surrogates. */
export function byCharacters(one: string, other: string): number {
  const [a, b] = [Array.from(one), Array.from(other)];
  for (let i = 0; i < Math.min(a.length, b.length); i++) {
    const difference = a[i]!.codePointAt(0)! - b[i]!.codePointAt(0)!;
    if (difference) return difference;
  }
  return a.length - b.length;
}

/** A value of plain JavaScript as JSON. Numbers are ints if they are whole; see `float`. */
export function toJson(value: unknown): Json {
  if (value instanceof Num || value === null) return value;
  if (Array.isArray(value)) return value.map(toJson);
  if (value instanceof Map) return new Map([...value].map(([k, v]) => [k as string, toJson(v)]));
  switch (typeof value) {
    case "string":
    case "boolean":
      return value;
    case "number":
      return Number.isFinite(value) ? value : null; // as run logs have it
    case "object":
      return new Map(
        Object.entries(value as object)
          .filter(([, item]) => item !== undefined)
          .map(([key, item]) => [key, toJson(item)]),
      );
    default:
      throw new TypeError(`JSON has no ${typeof value}`);
  }
}

/** Plain JavaScript values of JSON. */
export function fromJson(value: Json): unknown {
  if (value instanceof Num) return value.value;
  if (Array.isArray(value)) return value.map(fromJson);
  if (value instanceof Map) {
    // `__proto__` as a name must be a field like any other.
    return Object.fromEntries([...value].map(([key, item]) => [key, fromJson(item)]));
  }
  return value;
}
