/** A line chart in SVG, as wide as there is room. */
import { setText, svg } from "../dom";
import { texts } from "../texts";

const HEIGHT = 170;
const LEFT = 54;
const BOTTOM = 20;
const TOP = 8;
const RIGHT = 8;
/** Points that are drawn; of more, neighbors are averaged. */
const MOST = 200;
const TICKS = 3;

type Point = readonly [x: number, y: number];

export interface ChartFacts {
  title: string;
  format(value: number): string;
  /** Bounds of the vertical axis; by default 0, and the largest value. */
  low?: number;
  high?: number;
}

export class Chart {
  readonly element: SVGElement;
  private width = 560;
  private readonly line = svg("polyline", { class: "line" });
  private readonly dots = svg("g", { class: "dots" });
  private readonly axis = svg("g", { class: "axis" });
  private readonly name = svg("title");
  private points: Point[] = [];
  private waiting = false;
  private most = 0;

  constructor(private readonly facts: ChartFacts) {
    this.element = svg(
      "svg",
      { height: HEIGHT, role: "img", class: "chart" },
      this.name,
      this.axis,
      this.line,
      this.dots,
    );
    new ResizeObserver(([entry]) => this.fit(entry!.contentRect.width)).observe(this.element);
    this.draw();
  }

  private fit(width: number): void {
    if (!width || width === this.width) return; // hidden, or nothing new
    this.width = width;
    this.later();
  }

  /** Begin anew; `most` is the last x that is expected. */
  clear(most = 0): void {
    this.points = [];
    this.most = most;
    this.later();
  }

  /** Whether there is more to see than one point. */
  get hasLine(): boolean {
    return this.points.length > 1;
  }

  add(x: number, y: number): void {
    if (!Number.isFinite(y)) return;
    this.points.push([x, y]);
    this.later();
  }

  private later(): void {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  private draw(): void {
    const points = thinned(this.points);
    const values = points.map(([, y]) => y);
    const { low = 0, high = values.length ? Math.max(low + 0.01, ...values) : 1 } = this.facts;
    const last = Math.max(this.most, this.points.at(-1)?.[0] ?? 1, 1);
    const first = Math.min(this.points[0]?.[0] ?? 0, last - 1);
    const right = this.width - RIGHT;
    const x = (value: number) => LEFT + ((value - first) / (last - first)) * (right - LEFT);
    const y = (value: number) => TOP + (1 - (value - low) / (high - low)) * (HEIGHT - TOP - BOTTOM);
    this.line.setAttribute(
      "points",
      points.map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`).join(" "),
    );
    const few = points.length <= 30;
    this.dots.replaceChildren(
      ...(few ? points : points.slice(-1)).map(([a, b]) =>
        svg("circle", { cx: x(a), cy: y(b), r: 2.5 }),
      ),
    );
    this.axis.replaceChildren(...this.ticks(low, high, right, y), ...this.ends(first, last, x));
    const ends = [values[0], values.at(-1)].map((value) =>
      value === undefined ? "" : this.facts.format(value),
    );
    setText(
      this.name,
      texts.chartSummary(this.facts.title, this.points.length, ends[0]!, ends[1]!),
    );
  }

  private ticks(
    low: number,
    high: number,
    right: number,
    y: (value: number) => number,
  ): SVGElement[] {
    return Array.from({ length: TICKS }, (_, i) => low + ((high - low) * i) / (TICKS - 1)).flatMap(
      (value) => [
        svg("line", { x1: LEFT, x2: right, y1: y(value), y2: y(value) }),
        svg(
          "text",
          { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" },
          this.facts.format(value),
        ),
      ],
    );
  }

  private ends(first: number, last: number, x: (value: number) => number): SVGElement[] {
    return [
      svg("text", { x: x(first), y: HEIGHT - 4 }, texts.number(first)),
      svg("text", { x: x(last), y: HEIGHT - 4, "text-anchor": "end" }, texts.number(last)),
    ];
  }
}

/** Means of neighbors, so that the line has at most `MOST` points. */
export function thinned(points: readonly Point[], most = MOST): Point[] {
  if (points.length <= most) return [...points];
  return Array.from({ length: most }, (_, i) => {
    const start = Math.floor((i * points.length) / most);
    const group = points.slice(start, Math.floor(((i + 1) * points.length) / most));
    const mean = (at: 0 | 1) => group.reduce((sum, point) => sum + point[at], 0) / group.length;
    return [mean(0), mean(1)];
  });
}
