/** Thumbnails of a class. Only those in sight exist, so that thousands are as cheap as a few. */
import type { PhotoRecord } from "../../storage/schema";
import { h, showBlob } from "../dom";
import { texts } from "../texts";

/** Fewest pixels of a thumbnail with its gap; columns share what is left. */
const CELL = 62;
/** Rows beyond what is in sight. */
const MORE = 2;

export interface GridActions {
  thumbnail(id: number): Promise<Blob | undefined>;
  selected(ids: Set<number>): void;
  remove(ids: Set<number>): void;
}

export class Grid {
  readonly element: HTMLElement;
  private readonly space = h("div", { class: "space", role: "presentation" });
  private photos: PhotoRecord[] = [];
  private readonly shown = new Map<number, HTMLElement>();
  private selection = new Set<number>();
  /** What was selected before Shift began to extend it. */
  private base = this.selection;
  private current = 0;
  private anchor = 0;
  private columns = 1;
  private cellSize = CELL;

  constructor(
    /** The column's id: photos with several attributes are in as many grids. */
    private readonly id: number,
    private readonly actions: GridActions,
  ) {
    this.element = h("div", {
      class: "grid",
      role: "listbox",
      tabIndex: 0,
      "aria-multiselectable": "true",
      title: texts.gridHelp,
      on: {
        scroll: () => this.draw(),
        keydown: (event) => this.key(event),
        click: (event) => this.click(event),
        focus: () => this.mark(),
        blur: () => this.mark(),
      },
    });
    this.element.append(this.space);
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  name(name: string): void {
    this.element.setAttribute("aria-label", texts.gridLabel(name));
  }

  show(photos: PhotoRecord[]): void {
    if (photos === this.photos) return;
    const grown = photos.length > this.photos.length && this.atEnd();
    this.photos = photos;
    this.element.hidden = !photos.length;
    this.current = Math.min(this.current, Math.max(0, photos.length - 1));
    this.anchor = this.current;
    const present = new Set(photos.map(({ id }) => id));
    this.select(new Set([...this.selection].filter((id) => present.has(id))));
    this.draw();
    if (grown) this.element.scrollTop = this.element.scrollHeight;
  }

  selectAll(all: boolean): void {
    this.select(new Set(all ? this.photos.map(({ id }) => id) : []));
  }

  private atEnd(): boolean {
    const { scrollTop, clientHeight, scrollHeight } = this.element;
    return scrollTop + clientHeight > scrollHeight - this.cellSize;
  }

  /** Make the thumbnails in sight, and give the others back. */
  private draw(): void {
    const { clientWidth, clientHeight, scrollTop } = this.element;
    if (!clientWidth) return;
    this.columns = Math.max(1, Math.floor(clientWidth / CELL));
    this.cellSize = clientWidth / this.columns;
    this.space.style.setProperty("--cell", `${this.cellSize}px`);
    const rows = Math.ceil(this.photos.length / this.columns);
    this.space.style.height = `${rows * this.cellSize}px`;
    const first = Math.max(0, Math.floor(scrollTop / this.cellSize) - MORE) * this.columns;
    const last = (Math.ceil((scrollTop + clientHeight) / this.cellSize) + MORE) * this.columns;
    const wanted = this.photos.slice(first, last);
    const ids = new Set(wanted.map(({ id }) => id));
    for (const [id, cell] of this.shown) {
      if (ids.has(id)) continue;
      cell.remove();
      this.shown.delete(id);
    }
    wanted.forEach((photo, i) => this.place(photo, first + i));
    this.mark();
  }

  private place(photo: PhotoRecord, index: number): void {
    let cell = this.shown.get(photo.id);
    if (!cell) {
      cell = this.cell(photo);
      this.shown.set(photo.id, cell);
      this.space.append(cell);
    }
    cell.dataset["index"] = String(index);
    cell.setAttribute("aria-posinset", String(index + 1));
    cell.setAttribute("aria-setsize", String(this.photos.length));
    cell.style.left = `${(index % this.columns) * this.cellSize}px`;
    cell.style.top = `${Math.floor(index / this.columns) * this.cellSize}px`;
  }

  private cell({ id, name }: PhotoRecord): HTMLElement {
    const image = h("img", { alt: "" });
    const made = h(
      "div",
      { role: "option", id: this.idOf(id), "aria-label": name, title: name, class: "thumbnail" },
      image,
    );
    void this.actions.thumbnail(id).then((blob) => {
      if (blob && this.shown.get(id) === made) showBlob(image, blob);
    });
    return made;
  }

  private idOf(photo: number): string {
    return `photo-${photo}-of-${this.id}`;
  }

  private click(event: MouseEvent): void {
    const cell = (event.target as Element).closest<HTMLElement>(".thumbnail");
    if (!cell) return;
    this.current = Number(cell.dataset["index"]);
    if (event.shiftKey) this.extend();
    else this.toggle();
  }

  private key(event: KeyboardEvent): void {
    const page = this.columns * Math.max(1, Math.floor(this.element.clientHeight / this.cellSize));
    const steps: Record<string, number> = {
      ArrowLeft: -1,
      ArrowRight: 1,
      ArrowUp: -this.columns,
      ArrowDown: this.columns,
      PageUp: -page,
      PageDown: page,
      Home: -Infinity,
      End: Infinity,
    };
    const step = steps[event.key];
    if (step !== undefined) {
      this.current = Math.min(this.photos.length - 1, Math.max(0, this.current + step));
      if (event.shiftKey) this.extend();
      this.reveal();
    } else if (event.key === " ") this.toggle();
    else if (event.key === "a" && (event.ctrlKey || event.metaKey)) this.selectAll(true);
    else if (event.key === "Escape" && this.selection.size) this.selectAll(false);
    else if (event.key === "Delete" || event.key === "Backspace") this.removeSelected();
    else return;
    event.preventDefault();
  }

  private removeSelected(): void {
    const chosen = this.photos[this.current];
    const ids = this.selection.size ? this.selection : new Set(chosen ? [chosen.id] : []);
    if (ids.size) this.actions.remove(new Set(ids));
  }

  private toggle(): void {
    const photo = this.photos[this.current];
    if (!photo) return;
    this.anchor = this.current;
    const selection = new Set(this.selection);
    if (!selection.delete(photo.id)) selection.add(photo.id);
    this.select(selection);
  }

  private extend(): void {
    const [from, to] = [this.anchor, this.current].sort((a, b) => a - b) as [number, number];
    const between = this.photos.slice(from, to + 1).map(({ id }) => id);
    this.select(new Set([...this.base, ...between]), this.base);
  }

  private select(selection: Set<number>, base = selection): void {
    this.selection = selection;
    this.base = base;
    this.actions.selected(selection);
    this.mark();
  }

  private reveal(): void {
    const top = Math.floor(this.current / this.columns) * this.cellSize;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop) this.element.scrollTop = top;
    else if (top + this.cellSize > scrollTop + clientHeight)
      this.element.scrollTop = top + this.cellSize - clientHeight;
    this.draw();
  }

  private mark(): void {
    const current = this.photos[this.current];
    const focused = document.activeElement === this.element;
    for (const [id, cell] of this.shown) {
      cell.setAttribute("aria-selected", String(this.selection.has(id)));
      cell.classList.toggle("current", focused && id === current?.id);
    }
    const active = current && this.shown.has(current.id) ? this.idOf(current.id) : null;
    if (active) this.element.setAttribute("aria-activedescendant", active);
    else this.element.removeAttribute("aria-activedescendant");
  }
}
