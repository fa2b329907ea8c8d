/** The engine's side of the storage: photos one by one, and features that are kept. */
import type { FeatureKey, WorkerStore } from "../contract";
import { type Database, isQuota, openDatabase, saved } from "./schema";

/**
 * Open the storage in a worker.
 *
 * @throws UserError where the browser keeps nothing for this page.
 */
export async function openWorkerStore(database: string): Promise<WorkerStore> {
  return new DatabaseStore(await openDatabase(database));
}

class DatabaseStore implements WorkerStore {
  constructor(private readonly database: Database) {}

  photo(id: number): Promise<Blob | undefined> {
    return saved(this.database.get("blobs", id));
  }

  readFeatures(keys: FeatureKey[]): Promise<(Uint8Array | undefined)[]> {
    return saved(this.read(keys));
  }

  private async read(keys: FeatureKey[]): Promise<(Uint8Array | undefined)[]> {
    const reading = this.database.transaction("features").store;
    return Promise.all(keys.map((key) => reading.get(key)));
  }

  async writeFeatures(entries: [FeatureKey, Uint8Array][]): Promise<boolean> {
    const change = this.database.transaction("features", "readwrite");
    try {
      const writes = entries.map(([key, value]) => change.store.put(value, key));
      await Promise.all([...writes, change.done]);
      return true;
    } catch (error) {
      await change.done.catch(() => undefined);
      if (isQuota(error) || isQuota(change.error)) return false;
      return saved(Promise.reject(error));
    }
  }

  close(): void {
    this.database.close();
  }
}
