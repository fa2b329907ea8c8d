/** The classes and photos, in memory as they are on the disk. */
import { type TaskName, UserError } from "../contract";
import type { ClassRecord, NewPhoto, PhotoRecord } from "../storage/schema";
import { keepFirmly, type Store } from "../storage/store";
import { checkName, shortened } from "./names";
import { texts } from "./texts";

const MOST_CLASSES = 1000;
/** Photos that are deleted by one change of the storage. */
const TOGETHER = 100;
/** The place of photos that have no attribute, beside the ids of the classes. */
export const NONE = 0;

/** What changes once it is saved. */
type Arranged = Pick<Project, "task" | "classes">;

export class Project {
  task: TaskName = "classification";
  /** Or attributes, of which a photo may have several, or none. */
  classes: ClassRecord[] = [];
  /** Hash of the chosen kit. */
  kit: string | null = null;
  /** The greatest id that a class has had: what still comes for a deleted class finds no other. */
  private lastClass = 0;
  private photos = new Map<number, PhotoRecord>();
  private photosOf = new Map<number, PhotoRecord[]>();
  private changes: Promise<unknown> = Promise.resolve();
  private readonly listeners = new Set<() => void>();

  private constructor(readonly store: Store) {}

  static async open(store: Store): Promise<Project> {
    const project = new Project(store);
    await project.load();
    return project;
  }

  private async load(): Promise<void> {
    const [saved, photos] = await Promise.all([this.store.project(), this.store.photos()]);
    this.task = saved?.task ?? "classification";
    this.classes =
      saved?.classes ??
      [1, 2].map((each) => ({
        id: this.lastClass + each,
        name: texts.newClass(this.task, each),
      }));
    this.lastClass = saved?.lastClass ?? Math.max(0, ...this.classes.map(({ id }) => id));
    this.kit = saved?.kit ?? null;
    const kept = photos.flatMap((photo) => this.known(photo) ?? []);
    this.photos = new Map(kept.map((photo) => [photo.id, photo]));
    const lost = photos.filter(({ id }) => !this.photos.has(id)); // of classes that were deleted
    if (lost.length) await this.store.remove(lost.map(({ id }) => id));
    this.photosOf.clear();
  }

  /** A photo with those of its classes that there are; undefined if it had one and that is gone. */
  private known<T extends { owners: number[] }>(photo: T): T | undefined {
    const owners = photo.owners.filter((owner) => this.classes.some(({ id }) => id === owner));
    const isLost = photo.owners.length > 0 && !owners.length && !this.isTagged;
    return isLost ? undefined : { ...photo, owners };
  }

  /** Whether a photo may be of several classes, or of none: they are attributes. */
  get isTagged(): boolean {
    return this.task === "attributes";
  }

  /** Call back after each change. */
  onChange(listener: () => void): void {
    this.listeners.add(listener);
  }

  private changed(): void {
    for (const listener of this.listeners) listener();
  }

  get count(): number {
    return this.photos.size;
  }

  /** The classes that have photos. */
  get filled(): ClassRecord[] {
    return this.classes.filter(({ id }) => this.of(id).length);
  }

  /** Photos have to differ: two classes, or an attribute that not all of them have. */
  get canTrain(): boolean {
    const { filled } = this;
    if (!this.isTagged) return filled.length > 1;
    return filled.some(({ id }) => this.of(id).length < this.count);
  }

  /** The photos of a class; those of no attribute for `NONE`. The array is another one after a change. */
  of(owner: number): PhotoRecord[] {
    let found = this.photosOf.get(owner);
    if (!found) {
      found = this.all().filter((photo) => placesOf(photo).includes(owner));
      this.photosOf.set(owner, found);
    }
    return found;
  }

  /** In the order in which they came. */
  all(): PhotoRecord[] {
    return [...this.photos.values()];
  }

  /** The number of the next recording, whose frames belong together. */
  nextRecording(): number {
    return this.all().reduce((most, photo) => Math.max(most, photo.recording), 0) + 1;
  }

  /** @throws UserError if there is a class of this name, or too many. */
  async addClass(name?: string): Promise<ClassRecord> {
    let made: ClassRecord | undefined;
    await this.change(() => {
      if (this.classes.length >= MOST_CLASSES) {
        throw new UserError(texts.tooManyClasses(MOST_CLASSES));
      }
      made = { id: this.lastClass + 1, name: name ?? this.freeName() };
      this.checkName(made.name);
      return { classes: [...this.classes, made] };
    });
    this.changed();
    return made!;
  }

  /** Classes without photos that still have the name they were made with. */
  get unused(): ClassRecord[] {
    return this.classes.filter(({ id, name }) => !this.of(id).length && texts.isNewClass(name));
  }

  /**
   * The ids of the classes of these names. Those that are missing are made, all or none, in place of
   * those of `unused` that are as they were.
   *
   * @throws UserError as `checkClasses`.
   */
  async classesNamed(names: string[], unused: ClassRecord[]): Promise<number[]> {
    await this.change(() => ({ classes: this.withClasses(names, unused) }));
    this.changed();
    const ids = new Map(this.classes.map(({ id, name }) => [name, id]));
    return names.map((name) => ids.get(shortened(name))!);
  }

  /** @throws UserError if `classesNamed` had to make too many, or one that cannot be. */
  checkClasses(names: string[], unused: ClassRecord[]): void {
    this.withClasses(names, unused);
  }

  private withClasses(names: string[], unused: ClassRecord[]): ClassRecord[] {
    const wanted = new Set(names.map(shortened));
    const given = new Set(unused);
    const kept = this.classes.filter(
      (each) => !given.has(each) || wanted.has(each.name) || this.of(each.id).length,
    );
    for (const { name } of kept) wanted.delete(name);
    if (kept.length + wanted.size > MOST_CLASSES) {
      throw new UserError(texts.tooManyClasses(MOST_CLASSES));
    }
    const made = [...wanted].map((name, i) => ({ id: this.lastClass + 1 + i, name }));
    for (const { name } of made) this.checkName(name);
    return [...kept, ...made];
  }

  /** @throws UserError if another class has this name, or it is empty. */
  async rename(id: number, name: string): Promise<void> {
    const clean = name.trim().normalize("NFC");
    await this.change(() => {
      this.checkName(clean, id);
      return {
        classes: this.classes.map((each) => (each.id === id ? { id, name: clean } : each)),
      };
    });
    this.changed();
  }

  /** Remove a class with its photos; those of an attribute stay. */
  async removeClass(id: number): Promise<void> {
    await this.change(() => ({ classes: this.classes.filter((each) => each.id !== id) }));
    this.changed();
    const ids = new Set(this.of(id).map((photo) => photo.id)); // none is added from now on
    if (this.isTagged) await this.tag(ids, id, false);
    else await this.remove(ids);
  }

  /** Photos without copies: of the same file as one that is there, and of no class that it is not. */
  withoutCopies(photos: NewPhoto[]): NewPhoto[] {
    const digests = new Set(photos.map(({ digest }) => digest));
    const keysOf = ({ digest, owners }: Pick<PhotoRecord, "digest" | "owners">) =>
      [NONE, ...owners].map((place) => `${digest} ${place}`);
    const known = new Set(
      this.all().flatMap((each) => (digests.has(each.digest) ? keysOf(each) : [])),
    );
    return photos.filter((photo) => {
      const keys = keysOf(photo);
      const isCopy = photo.digest !== undefined && keys.every((key) => known.has(key));
      for (const key of keys) known.add(key);
      return !isCopy;
    });
  }

  /**
   * Keep photos, but not those of a class that was deleted meanwhile.
   *
   * @throws UserError if there is no room, or photos are to have a class each and these do not.
   */
  add(given: NewPhoto[]): Promise<PhotoRecord[]> {
    return this.inTurn(async () => {
      if (!this.isTagged && given.some(hasNotOne))
        throw new UserError(texts.otherLabels.attributes);
      const photos = given.flatMap((photo) => this.known(photo) ?? []);
      if (!this.count) {
        void keepFirmly();
        await this.save({}); // the classes that a first visit begins with
      }
      const kept = await this.store.add(photos);
      this.keep(kept);
      return kept;
    });
  }

  /**
   * Put photos into another class.
   *
   * @throws UserError if the class was deleted.
   */
  async move(ids: Set<number>, to: number): Promise<void> {
    await this.changePhotos(ids, () => {
      this.checkClass(to);
      return [to];
    });
  }

  /**
   * Give photos an attribute, or take it from them.
   *
   * @throws UserError if the attribute to give was deleted.
   */
  async tag(ids: Set<number>, owner: number, present: boolean): Promise<void> {
    await this.changePhotos(ids, (owners) => {
      if (present) this.checkClass(owner);
      const others = owners.filter((each) => each !== owner);
      return present ? [...others, owner] : others;
    });
  }

  /** Some at a time: a browser can take a minute for thousands, in which the page counts down. */
  remove(ids: Set<number>): Promise<void> {
    return this.inTurn(async () => {
      const all = [...ids];
      while (all.length) {
        const some = all.splice(-TOGETHER);
        await this.store.remove(some);
        for (const id of some) {
          this.forgetPlaces(this.photos.get(id));
          this.photos.delete(id);
        }
        this.changed();
      }
    });
  }

  private changePhotos(ids: Set<number>, make: (owners: number[]) => number[]): Promise<void> {
    return this.inTurn(async () => {
      const photos = [...ids].flatMap((id) => this.photos.get(id) ?? []);
      const changed = photos.map((photo) => ({ ...photo, owners: make(photo.owners) }));
      await this.store.change(changed);
      this.keep(changed);
    });
  }

  private keep(photos: PhotoRecord[]): void {
    for (const photo of photos) {
      this.forgetPlaces(this.photos.get(photo.id));
      this.forgetPlaces(photo);
      this.photos.set(photo.id, photo);
    }
    this.changed();
  }

  /** The lists that a photo is in are made anew. */
  private forgetPlaces(photo: PhotoRecord | undefined): void {
    for (const owner of photo ? placesOf(photo) : []) this.photosOf.delete(owner);
  }

  /**
   * Say what photos have: a class each, or any number of attributes.
   *
   * @throws UserError if they are to have a class each, and some have several attributes or none.
   */
  async setTask(task: TaskName): Promise<void> {
    await this.change(() => {
      const odd = this.all().filter(hasNotOne).length;
      if (task === "classification" && odd) throw new UserError(texts.notOneClass(odd));
      for (const { name } of this.classes) checkName(name, task);
      const classes = this.classes.map(({ id, name }) => {
        const isNew = texts.isNewClass(name) && !this.of(id).length;
        return { id, name: isNew ? texts.newClass(task, Number(/\d+$/.exec(name))) : name };
      });
      return { task, classes };
    });
    this.changed();
  }

  /** A kit is chosen at once, since a run may begin before what else changes is saved. */
  async chooseKit(hash: string | null): Promise<void> {
    this.kit = hash;
    this.changed();
    await this.change(() => ({})); // with the kit of then: another task may have brought another
  }

  /** Delete everything that the page keeps. */
  async forget(): Promise<void> {
    await this.inTurn(async () => {
      await this.store.forget();
      await this.load();
    });
    this.changed();
  }

  /** Save what `make` changes. */
  private change(make: () => Partial<Arranged>): Promise<void> {
    return this.inTurn(() => this.save(make()));
  }

  /** What cannot be saved is not changed: the page goes on with what the disk has. */
  private async save(changed: Partial<Arranged>): Promise<void> {
    const { task, classes, kit } = this;
    const arranged = { task, classes, ...changed };
    const lastClass = Math.max(this.lastClass, ...arranged.classes.map(({ id }) => id));
    await this.store.saveProject({ ...arranged, kit, lastClass });
    Object.assign(this, changed, { lastClass });
  }

  /** Changes of classes and photos follow each other: each sees what the one before has left. */
  private inTurn<T>(change: () => Promise<T>): Promise<T> {
    const done = this.changes.then(change);
    this.changes = done.catch(() => undefined);
    return done;
  }

  private checkClass(id: number): void {
    if (!this.classes.some((each) => each.id === id)) {
      throw new UserError(texts.classGone[this.task]);
    }
  }

  private freeName(): string {
    let number = this.classes.length + 1;
    const nameOf = () => texts.newClass(this.task, number);
    while (this.classes.some(({ name }) => name === nameOf())) number++;
    return nameOf();
  }

  private checkName(name: string, own?: number): void {
    checkName(name, this.task);
    if (this.classes.some((each) => each.name === name && each.id !== own)) {
      throw new UserError(texts.sameName(name));
    }
  }
}

function hasNotOne({ owners }: Pick<PhotoRecord, "owners">): boolean {
  return owners.length !== 1;
}

function placesOf({ owners }: Pick<PhotoRecord, "owners">): number[] {
  return owners.length ? owners : [NONE];
}
