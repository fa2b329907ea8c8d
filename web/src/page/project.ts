/** The classes and photos, in memory as they are on the disk. */
import { UserError } from "../contract";
import type { ClassRecord, NewPhoto, PhotoRecord } from "../storage/schema";
import { keepFirmly, type Store } from "../storage/store";
import { texts } from "./texts";

const MOST_CLASSES = 1000;
const LONGEST_NAME = 200;

export class Project {
  classes: ClassRecord[] = [];
  /** Hash of the chosen kit. */
  kit: string | null = null;
  private photosOf = new Map<number, PhotoRecord[]>();
  private changes: Promise<void> = Promise.resolve();
  private readonly listeners = new Set<() => void>();

  private constructor(readonly store: Store) {}

  static async open(store: Store): Promise<Project> {
    const project = new Project(store);
    await project.load();
    return project;
  }

  private async load(): Promise<void> {
    const [saved, photos] = await Promise.all([this.store.project(), this.store.photos()]);
    this.classes =
      saved?.classes ??
      [texts.newClass(1), texts.newClass(2)].map((name, i) => ({ id: i + 1, name }));
    this.kit = saved?.kit ?? null;
    this.photosOf = new Map(this.classes.map(({ id }) => [id, []]));
    const lost = photos.filter((photo) => !this.photosOf.has(photo.owner));
    if (lost.length) await this.store.remove(lost.map(({ id }) => id)); // of classes that were deleted
    for (const photo of photos) this.photosOf.get(photo.owner)?.push(photo);
  }

  /** Call back after each change. */
  onChange(listener: () => void): void {
    this.listeners.add(listener);
  }

  private changed(): void {
    for (const listener of this.listeners) listener();
  }

  get count(): number {
    return this.classes.reduce((sum, { id }) => sum + this.of(id).length, 0);
  }

  /** The classes that have photos. */
  get filled(): ClassRecord[] {
    return this.classes.filter(({ id }) => this.of(id).length);
  }

  get canTrain(): boolean {
    return this.filled.length > 1;
  }

  /** The photos of a class. The array is another one after a change. */
  of(owner: number): PhotoRecord[] {
    return this.photosOf.get(owner) ?? [];
  }

  all(): PhotoRecord[] {
    return this.classes.flatMap(({ id }) => this.of(id));
  }

  find(id: number): PhotoRecord | undefined {
    return this.all().find((photo) => photo.id === id);
  }

  /** The number of the next recording, whose frames belong together. */
  nextRecording(): number {
    return this.all().reduce((most, photo) => Math.max(most, photo.recording), 0) + 1;
  }

  /** @throws UserError if there is a class of this name, or too many. */
  async addClass(name?: string): Promise<ClassRecord> {
    let made: ClassRecord | undefined;
    await this.change((classes) => {
      if (classes.length >= MOST_CLASSES) {
        throw new UserError(texts.tooManyClasses(MOST_CLASSES));
      }
      const id = classes.reduce((most, each) => Math.max(most, each.id), 0) + 1;
      made = { id, name: name ?? this.freeName() };
      this.checkName(made.name);
      return [...classes, made];
    });
    this.changed();
    return made!;
  }

  /** The class of this name; a new one if there is none. */
  async classNamed(name: string): Promise<ClassRecord> {
    const short = name.slice(0, LONGEST_NAME);
    return this.classes.find((each) => each.name === short) ?? (await this.addClass(short));
  }

  /** @throws UserError if another class has this name, or it is empty. */
  async rename(id: number, name: string): Promise<void> {
    const clean = name.trim().normalize("NFC");
    await this.change((classes) => {
      this.checkName(clean, id);
      return classes.map((each) => (each.id === id ? { id, name: clean } : each));
    });
    this.changed();
  }

  async removeClass(id: number): Promise<void> {
    await this.store.remove(this.of(id).map((photo) => photo.id));
    await this.change((classes) => classes.filter((each) => each.id !== id));
    this.photosOf.delete(id);
    this.changed();
  }

  /** Remove classes without photos that still have the name they were made with, but not `wanted`. */
  async removeUnused(wanted: ReadonlySet<number> = new Set()): Promise<void> {
    await this.change((classes) => {
      const kept = classes.filter(
        ({ id, name }) => this.of(id).length || wanted.has(id) || !texts.isNewClass(name),
      );
      return kept.length ? kept : classes;
    });
    this.changed();
  }

  /**
   * Keep photos, but not those of a class that was deleted meanwhile.
   *
   * @throws UserError if there is no room.
   */
  async add(given: NewPhoto[]): Promise<PhotoRecord[]> {
    const photos = given.filter(({ owner }) => this.classes.some(({ id }) => id === owner));
    if (!this.count) {
      void keepFirmly();
      await this.change((classes) => classes); // keep those that a first visit begins with
    }
    const added = await this.store.add(photos);
    for (const owner of new Set(added.map((photo) => photo.owner))) {
      const own = added.filter((photo) => photo.owner === owner);
      this.photosOf.set(owner, [...this.of(owner), ...own]);
    }
    this.changed();
    return added;
  }

  async move(ids: Set<number>, from: number, to: number): Promise<void> {
    const moved = this.of(from).filter((photo) => ids.has(photo.id));
    await this.store.move(moved, to);
    this.photosOf.set(
      from,
      this.of(from).filter((photo) => !ids.has(photo.id)),
    );
    const there = [...this.of(to), ...moved.map((photo) => ({ ...photo, owner: to }))];
    this.photosOf.set(
      to,
      there.sort((a, b) => a.id - b.id),
    );
    this.changed();
  }

  async remove(ids: Set<number>, owner: number): Promise<void> {
    await this.store.remove([...ids]);
    this.photosOf.set(
      owner,
      this.of(owner).filter((photo) => !ids.has(photo.id)),
    );
    this.changed();
  }

  async chooseKit(hash: string): Promise<void> {
    this.kit = hash;
    await this.change((classes) => classes);
    this.changed();
  }

  /** Delete everything that the page keeps. */
  async forget(): Promise<void> {
    await this.store.forget();
    await this.load();
    this.changed();
  }

  /** Save the classes as `make` leaves them. Changes follow each other, so that none is lost. */
  private change(make: (classes: ClassRecord[]) => ClassRecord[]): Promise<void> {
    const done = this.changes.then(async () => {
      const classes = make(this.classes);
      await this.store.saveProject({ classes, kit: this.kit });
      this.classes = classes;
    });
    this.changes = done.catch(() => undefined);
    return done;
  }

  private freeName(): string {
    let number = this.classes.length + 1;
    while (this.classes.some(({ name }) => name === texts.newClass(number))) number++;
    return texts.newClass(number);
  }

  private checkName(name: string, own?: number): void {
    if (!name) throw new UserError(texts.namelessClass);
    if (name.length > LONGEST_NAME) throw new UserError(texts.longName(LONGEST_NAME));
    if (this.classes.some((each) => each.name === name && each.id !== own)) {
      throw new UserError(texts.sameName(name));
    }
  }
}
