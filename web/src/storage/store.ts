/** The page's side of the storage. Photos are listed without their bytes, which stay on disk. */
import { type Checkpoint, UserError } from "../contract";
import {
  type Database,
  DATABASE,
  isQuota,
  type KitRecord,
  type ModelRecord,
  type NewPhoto,
  openDatabase,
  type PhotoRecord,
  type Project,
  saved,
} from "./schema";

const EVERYTHING = [
  "photos",
  "blobs",
  "thumbnails",
  "features",
  "kits",
  "project",
  "checkpoint",
  "model",
] as const;
const OF_PHOTOS = ["photos", "blobs", "thumbnails"] as const;

export class Store {
  private constructor(
    private readonly database: Database,
    /** The database's name, by which a worker opens it. */
    readonly name: string,
  ) {}

  /** @throws UserError where the browser keeps nothing for this page. */
  static async open(name = DATABASE): Promise<Store> {
    return new Store(await openDatabase(name), name);
  }

  /** All photos without their bytes, in the order in which they came. */
  photos(): Promise<PhotoRecord[]> {
    return this.database.getAll("photos");
  }

  /** @throws UserError if the photo is gone. */
  async photo(id: number): Promise<Blob> {
    const blob = await this.database.get("blobs", id);
    if (!blob) throw new UserError("This photo was deleted.");
    return blob;
  }

  thumbnail(id: number): Promise<Blob | undefined> {
    return this.database.get("thumbnails", id);
  }

  /**
   * Make a change for which features, which can be computed again, make room.
   *
   * @throws UserError if there is no room.
   */
  private async keep<T>(change: () => Promise<T>): Promise<T> {
    try {
      return await change();
    } catch (error) {
      if (!isQuota(error)) return saved(Promise.reject(error));
      await this.clearFeatures();
      return saved(change());
    }
  }

  /**
   * Keep photos, all or none.
   *
   * @throws UserError if there is no room.
   */
  add(photos: NewPhoto[]): Promise<PhotoRecord[]> {
    return this.keep(() => this.put(photos));
  }

  private async put(photos: NewPhoto[]): Promise<PhotoRecord[]> {
    const change = this.database.transaction(OF_PHOTOS, "readwrite");
    const kept = photos.map(async ({ blob, thumbnail, ...facts }) => {
      const id = await change.objectStore("photos").add(facts as PhotoRecord);
      await change.objectStore("blobs").put(blob, id);
      await change.objectStore("thumbnails").put(thumbnail, id);
      return { ...facts, id };
    });
    try {
      const [records] = await Promise.all([Promise.all(kept), change.done]);
      return records;
    } catch (error) {
      abort(change);
      await Promise.allSettled([...kept, change.done]);
      throw isQuota(change.error) ? change.error : error;
    }
  }

  /** Keep photos as they are now, all or none, but not those that are deleted. */
  async change(photos: PhotoRecord[]): Promise<void> {
    const change = this.database.transaction("photos", "readwrite");
    const changed = photos.map(async (photo) => {
      if (await change.store.getKey(photo.id)) await change.store.put(photo);
    });
    await saved(Promise.all([...changed, change.done]));
  }

  /** Delete photos and what was computed of them. */
  async remove(ids: number[]): Promise<void> {
    const change = this.database.transaction([...OF_PHOTOS, "features"], "readwrite");
    const removed = ids.flatMap((id) => [
      ...OF_PHOTOS.map((name) => change.objectStore(name).delete(id)),
      change.objectStore("features").delete(IDBKeyRange.bound([id], [id, []])),
    ]);
    await saved(Promise.all([...removed, change.done]));
  }

  project(): Promise<Project | undefined> {
    return this.database.get("project", "project");
  }

  async saveProject(project: Project): Promise<void> {
    await this.keep(() => this.database.put("project", project, "project"));
  }

  kits(): Promise<KitRecord[]> {
    return this.database.getAll("kits");
  }

  kit(hash: string): Promise<KitRecord | undefined> {
    return this.database.get("kits", hash);
  }

  async addKit(kit: KitRecord): Promise<void> {
    await this.keep(() => this.database.put("kits", kit));
  }

  async removeKit(hash: string): Promise<void> {
    await saved(this.database.delete("kits", hash));
  }

  checkpoint(): Promise<Checkpoint | undefined> {
    return this.database.get("checkpoint", "checkpoint");
  }

  async saveCheckpoint(checkpoint: Checkpoint): Promise<void> {
    await this.keep(() => this.database.put("checkpoint", checkpoint, "checkpoint"));
  }

  async dropCheckpoint(): Promise<void> {
    await saved(this.database.delete("checkpoint", "checkpoint"));
  }

  model(): Promise<ModelRecord | undefined> {
    return this.database.get("model", "model");
  }

  async saveModel(model: ModelRecord): Promise<void> {
    await this.keep(() => this.database.put("model", model, "model"));
  }

  /** Keep what a run has given in place of its checkpoint and features, all or nothing. */
  async finish(model: ModelRecord): Promise<void> {
    await this.keep(async () => {
      const change = this.database.transaction(["model", "checkpoint", "features"], "readwrite");
      await Promise.all([
        change.objectStore("model").put(model, "model"),
        change.objectStore("checkpoint").clear(),
        change.objectStore("features").clear(),
        change.done,
      ]);
    });
  }

  async clearFeatures(): Promise<void> {
    await saved(this.database.clear("features"));
  }

  /** Delete everything that the page keeps, in one step. */
  async forget(): Promise<void> {
    const change = this.database.transaction(EVERYTHING, "readwrite");
    const cleared = EVERYTHING.map((name) => change.objectStore(name).clear());
    await saved(Promise.all([...cleared, change.done]));
  }

  close(): void {
    this.database.close();
  }
}

function abort(change: { abort(): void }): void {
  try {
    change.abort();
  } catch {
    // the browser has done so itself
  }
}

/** Bytes that all pages of this address take on the disk; null where the browser does not say. */
export async function usedBytes(): Promise<number | null> {
  return (await navigator.storage?.estimate?.().catch(() => undefined))?.usage ?? null;
}

/** Ask the browser not to delete the photos when the disk runs low. */
export async function keepFirmly(): Promise<void> {
  await navigator.storage?.persist?.().catch(() => false);
}
