/** From files to photos of classes, a few at a time. */
import { type Split, type TaskName, UserError } from "../../contract";
import type { NewPhoto } from "../../storage/schema";
import type { Project } from "../project";
import { reasonOf, type Skipped } from "../skipped";
import { texts } from "../texts";
import { findLabels } from "./labels/find";
import type { Layout } from "./labels/layout";
import { isTable } from "./labels/rows";
import { readTable } from "./labels/tables";
import { preparePhoto } from "./prepare";
import type { Source } from "./sources";

/** Photos that are kept by one change of the storage. */
const TOGETHER = 32;
const AT_ONCE = 4;

export interface Outcome {
  added: number;
  skipped: Skipped[];
}

export interface Watch {
  signal: AbortSignal;
  progress(done: number, total: number, secondsLeft: number): void;
}

interface Item {
  source: Source;
  labels: string[];
  part: Split | null;
}

/** A photo that has been read, and its labels. */
type Labeled = Omit<NewPhoto, "owners"> & Pick<Item, "labels">;

/** How many photos were kept, and the copies that were left out. */
interface Kept {
  added: number;
  copies: NewPhoto[];
}

type Keep = (photos: Labeled[]) => Promise<Kept>;

/**
 * Import what folders or a table label. Classes and attributes that are missing are made with their
 * first photos, in place of those that the page begins with: a folder may have no photo.
 *
 * @throws UserError if nothing says what the photos are, or it is not as for those that there are.
 */
export async function importLabeled(
  project: Project,
  sources: Source[],
  watch: Watch,
): Promise<Outcome> {
  if (!sources.length) throw new UserError(texts.noFiles);
  const byPath = sourcesByPath(sources);
  const { task, classes, labeled } = await labelsOf(byPath, project.task);
  if (!project.count) await project.setTask(task);
  if (task !== project.task) throw new UserError(texts.otherLabels[task]);
  const { unused } = project;
  project.checkClasses(classes, unused);
  const items = labeled.flatMap(({ path, ...facts }) =>
    byPath.get(path)!.map((source) => ({ source, ...facts })),
  );
  // Class by class, in an order that does not depend on the browser's list.
  const places = new Map(classes.map((label, place) => [label, place]));
  const place = ({ labels }: Item) => (project.isTagged ? 0 : places.get(labels[0]!)!);
  items.sort((a, b) => place(a) - place(b) || (a.source.path < b.source.path ? -1 : 1));
  const known = new Map<string, number>();
  const keep: Keep = async (photos) => {
    const needed = project.isTagged ? classes : photos.flatMap(({ labels }) => labels);
    const missing = [...new Set(needed)].filter((label) => !known.has(label));
    const made = missing.length ? await project.classesNamed(missing, unused) : [];
    missing.forEach((label, i) => known.set(label, made[i]!));
    const ownersOf = (labels: string[]) => labels.map((label) => known.get(label)!);
    return keepNew(
      project,
      photos.map(({ labels, ...photo }) => ({ ...photo, owners: ownersOf(labels) })),
    );
  };
  return importItems(items, keep, watch);
}

/** Import photos into a column, in whatever folder they are; one of no attribute has no owner. */
export function importInto(
  project: Project,
  owners: number[],
  sources: Source[],
  watch: Watch,
): Promise<Outcome> {
  const photos = sources.filter((source) => !isTable(source.path));
  if (!photos.length) return Promise.reject(new UserError(texts.noFiles));
  const items = photos.map((source) => ({ source, labels: [], part: null }));
  const keep: Keep = (photos) => {
    const owned = photos.map(({ labels: _, ...photo }) => ({ ...photo, owners }));
    return project.isTagged ? keepTagged(project, owned, owners) : keepNew(project, owned);
  };
  return importItems(items, keep, watch);
}

/** Several archives may have the same folders: their files of one path are of one class. */
function sourcesByPath(sources: Source[]): Map<string, Source[]> {
  const byPath = new Map<string, Source[]>();
  for (const source of sources) {
    const before = byPath.get(source.path);
    if (before) before.push(source);
    else byPath.set(source.path, [source]);
  }
  return byPath;
}

async function labelsOf(byPath: Map<string, Source[]>, wanted: TaskName): Promise<Layout> {
  const paths = [...byPath.keys()];
  const twice = paths.find((path) => byPath.get(path)!.length > 1);
  if (twice !== undefined && paths.some(isTable)) {
    throw new UserError(texts.table.samePath(twice)); // which of them a table means is not certain
  }
  const read = async (path: string) => readTable(path, await byPath.get(path)![0]!.open());
  const found = await findLabels(paths, read);
  if (!found) throw new UserError(texts.manyTables(paths.filter(isTable)));
  if (!found.labeled.length) {
    throw new UserError(paths.every(isTable) ? texts.noFiles : texts.looseFiles[wanted]);
  }
  return found;
}

async function keepNew(project: Project, photos: NewPhoto[]): Promise<Kept> {
  const fresh = new Set(project.withoutCopies(photos));
  const added = fresh.size ? (await project.add([...fresh])).length : 0;
  return { added, copies: photos.filter((each) => !fresh.has(each)) };
}

/** The same, but a photo that is there is given the attribute: two would contradict each other. */
async function keepTagged(project: Project, photos: NewPhoto[], owners: number[]): Promise<Kept> {
  const present = new Map(project.all().map((photo) => [photo.digest, photo]));
  const lacking = new Set<number>();
  const others = photos.filter(({ digest }) => {
    const before = present.get(digest);
    if (!before || owners.every((owner) => before.owners.includes(owner))) return true;
    lacking.add(before.id);
    return false;
  });
  if (lacking.size) {
    for (const owner of owners) await project.tag(lacking, owner, true);
  }
  const { added, copies } = await keepNew(project, others);
  return { added: added + lacking.size, copies };
}

async function importItems(items: Item[], keep: Keep, watch: Watch): Promise<Outcome> {
  const outcome: Outcome = { added: 0, skipped: [] };
  const began = performance.now();
  for (let first = 0; first < items.length && !watch.signal.aborted; first += TOGETHER) {
    const prepared = await inTurns(items.slice(first, first + TOGETHER), (item) =>
      prepareItem(item, outcome),
    );
    const found = prepared.filter((photo) => photo !== null);
    if (found.length) {
      const { added, copies } = await keep(found);
      outcome.added += added;
      outcome.skipped.push(...copies.map(({ name }) => ({ name, reason: texts.copy })));
    }
    const done = Math.min(items.length, first + TOGETHER);
    const seconds = (performance.now() - began) / 1000;
    watch.progress(done, items.length, (seconds / done) * (items.length - done));
  }
  return outcome;
}

async function prepareItem({ source, ...facts }: Item, outcome: Outcome) {
  try {
    const prepared = await preparePhoto(await source.open());
    return { name: source.path, recording: 0, ...facts, ...prepared };
  } catch (error) {
    outcome.skipped.push({ name: source.path, reason: reasonOf(error) });
    return null;
  }
}

/** Results in order, with a few of them under way at once. */
async function inTurns<A, B>(all: A[], act: (each: A) => Promise<B>): Promise<B[]> {
  const results: B[] = [];
  let next = 0;
  const turn = async () => {
    while (next < all.length) {
      const index = next++;
      results[index] = await act(all[index]!);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, turn));
  return results;
}
