/** What the page keeps in the browser, by IndexedDB, and the errors of that in one sentence. */
import { type DBSchema, type IDBPDatabase, openDB } from "idb";
import {
  type Checkpoint,
  type Known,
  type PhotoEntry,
  type RunResult,
  type Score,
  type Split,
  type State,
  type TaskName,
  UserError,
} from "../contract";

export const DATABASE = "pocketune-studio";
const VERSION = 2;

/** A photo without its bytes, of which 10,000 are listed at once. */
export interface PhotoRecord {
  id: number;
  name: string;
  /** The class, by the id that it keeps when it is renamed; or any number of attributes. */
  owners: number[];
  /** Where the user's own files say so; null for photos that the studio divides. */
  part: Split | null;
  /** Frames of one recording look alike and have one number; 0 for a photo by itself. */
  recording: number;
  /** SHA-256 of the file, by which a copy is known; frames and photos of an earlier version have none. */
  digest?: string;
}

export type NewPhoto = Omit<PhotoRecord, "id"> & { blob: Blob; thumbnail: Blob };

/** A class or an attribute; ids begin at 1, and that of one that was deleted is not used again. */
export interface ClassRecord {
  id: number;
  name: string;
}

/** What the user has arranged, except for the photos. */
export interface Project {
  task: TaskName;
  classes: ClassRecord[];
  /** The id of the class that was made last; an earlier version did not keep it. */
  lastClass?: number;
  /** Hash of the chosen kit. */
  kit: string | null;
}

/** A kit that was dropped onto the page, or the one that a result or checkpoint needs. */
export interface KitRecord {
  hash: string;
  name: string;
  zip: Uint8Array;
}

/** What can be used: a finished run of the page, or what was opened of the command line. */
export interface ModelRecord {
  name: string;
  kitHash: string;
  task: TaskName;
  classes: string[];
  parameters: State;
  known: Known | null;
  /** Steps, and the score on the validation photos, of these values. */
  step: number;
  score: Score | null;
  /** A run of the page and its photos; null for what was opened. */
  run: { result: RunResult; photos: PhotoEntry[] } | null;
}

export interface Schema extends DBSchema {
  photos: { key: number; value: PhotoRecord };
  blobs: { key: number; value: Blob };
  thumbnails: { key: number; value: Blob };
  features: { key: [number, string]; value: Uint8Array };
  kits: { key: string; value: KitRecord };
  /** One value of each. */
  project: { key: "project"; value: Project };
  checkpoint: { key: "checkpoint"; value: Checkpoint };
  model: { key: "model"; value: ModelRecord };
}

export type Database = IDBPDatabase<Schema>;

/**
 * Open the database, and create it if there is none. What another version keeps is left as it is.
 *
 * @throws UserError where the browser keeps nothing for this page, or what this version cannot read.
 */
export async function openDatabase(name: string): Promise<Database> {
  let before = 0;
  try {
    return await openDB<Schema>(name, VERSION, {
      upgrade(made, old, _new, change) {
        before = old;
        if (old) {
          change.done.catch(() => undefined);
          return change.abort();
        }
        made.createObjectStore("photos", { keyPath: "id", autoIncrement: true });
        made.createObjectStore("kits", { keyPath: "hash" });
        const others = ["blobs", "thumbnails", "features", "project", "checkpoint", "model"];
        for (const each of others as (keyof Schema & "blobs")[]) made.createObjectStore(each);
      },
      blocking(_old, _new, event) {
        (event.target as IDBDatabase).close(); // a newer page in another tab goes first
      },
    });
  } catch (error) {
    if (before || (error instanceof DOMException && error.name === "VersionError")) {
      throw new UserError(
        `This browser keeps photos of ${before ? "an older" : "a newer"} version of Pocketune, which ` +
          "this one cannot read; go on with that version, or delete the data of this page in the " +
          "browser's settings.",
        { cause: error },
      );
    }
    throw new UserError(
      "This browser keeps nothing for the page, as in some private windows; open it in an ordinary window.",
      { cause: error },
    );
  }
}

export function isQuota(error: unknown): boolean {
  return error instanceof DOMException && error.name === "QuotaExceededError";
}

/**
 * Wait for what is asked of the database.
 *
 * @throws UserError where there is no room for it, or the database has gone.
 */
export async function saved<T>(change: Promise<T>): Promise<T> {
  try {
    return await change;
  } catch (error) {
    if (isQuota(error)) {
      throw new UserError(
        "There is no room left for this page; delete photos here, or files on this device.",
        { cause: error },
      );
    }
    if (error instanceof DOMException) {
      throw new UserError(
        `The browser's storage has failed (${error.name}); reload the page and try again.`,
        { cause: error },
      );
    }
    throw error;
  }
}
