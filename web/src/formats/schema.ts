/**
 * Strict reading of JSON, as `pocketune.schema` does it: every field has to be there, no other, and
 * an error names the field. Messages are those of Python.
 */
import { UserError } from "../contract";
import { decodeJson, Num, reprFloat, type Json } from "./json";

/** A value's file, and its path in the file's object, such as `parameters[0].name`. */
export class Place {
  constructor(
    readonly file: string,
    readonly path: string = "",
  ) {}

  toString(): string {
    return this.path ? `${this.file}: '${this.path}'` : this.file;
  }

  field(name: string): Place {
    return new Place(this.file, this.path ? `${this.path}.${name}` : name);
  }

  item(index: number): Place {
    return new Place(this.file, `${this.path}[${index}]`);
  }

  expected(what: string, value: Json): UserError {
    return new UserError(`${this.toString()} must be ${what}, not ${shown(value).slice(0, 80)}`);
  }
}

function shown(value: Json): string {
  if (typeof value === "string") return `'${value}'`;
  if (value instanceof Num) return value.float ? reprFloat(value.value) : value.text;
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return "a list";
  return value === null ? "null" : "an object";
}

export type Read<T> = (value: Json, place: Place) => T;
type Fields<T> = { [name in keyof T]: Read<T[name]> };

/** The object that a JSON file holds. */
export function parseObject(bytes: Uint8Array, where: string): Map<string, Json> {
  let value: Json;
  try {
    value = decodeJson(bytes);
  } catch (error) {
    throw new UserError(`${where} is not valid JSON (${(error as Error).message})`);
  }
  return object(value, new Place(where));
}

export const object: Read<Map<string, Json>> = (value, place) => {
  if (!(value instanceof Map)) throw place.expected("a JSON object", value);
  return value;
};

export const text: Read<string> = (value, place) => {
  if (typeof value !== "string" || !value) throw place.expected("a non-empty string", value);
  return value;
};

/** A whole number of at least `minimum`. */
export const whole =
  (minimum = 0): Read<number> =>
  (value, place) => {
    if (!(value instanceof Num) || value.float || value.value < minimum) {
      throw place.expected(`a whole number of at least ${minimum}`, value);
    }
    return value.value;
  };

export const finite: Read<number> = (value, place) => {
  if (!(value instanceof Num) || !Number.isFinite(value.value)) {
    throw place.expected("a finite number", value);
  }
  return value.value;
};

export const oneOf =
  <T extends string | number>(...known: T[]): Read<T> =>
  (value, place) => {
    const plain = value instanceof Num && !value.float ? value.value : value;
    if (!known.includes(plain as T)) throw place.expected(`one of ${known.join(", ")}`, value);
    return plain as T;
  };

export const orNull =
  <T>(read: Read<T>): Read<T | null> =>
  (value, place) =>
    value === null ? null : read(value, place);

/** A list of any length, or of `length` values. */
export const list =
  <T>(read: Read<T>, length?: number): Read<T[]> =>
  (value, place) => {
    if (!Array.isArray(value)) throw place.expected("a list", value);
    if (length !== undefined && value.length !== length) {
      throw place.expected(`a list of ${length} values`, value);
    }
    return value.map((item, index) => read(item, place.item(index)));
  };

/** An object of any names. */
export const dict =
  <T>(read: Read<T>): Read<Record<string, T>> =>
  (value, place) =>
    Object.fromEntries(
      [...object(value, place)].map(([name, item]) => [name, read(item, place.field(name))]),
    );

/** An object of exactly these fields. */
export const fields =
  <T extends object>(readers: Fields<T>): Read<T> =>
  (value, place) => {
    const left = new Map(object(value, place));
    const found: [string, unknown][] = [];
    for (const [name, read] of Object.entries(readers) as [string, Read<unknown>][]) {
      if (!left.has(name)) throw new UserError(`${place.toString()} lacks the field '${name}'`);
      found.push([name, read(left.get(name)!, place.field(name))]);
      left.delete(name);
    }
    for (const name of left.keys()) {
      throw new UserError(`${place.toString()} has the unknown field '${name}'`);
    }
    return Object.fromEntries(found) as T;
  };
