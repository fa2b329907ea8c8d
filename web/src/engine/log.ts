/** The lines of a run's metrics.jsonl, and its pace, by the run's clock; see device/train/log.py. */
import type { Counters, LogLine, Score } from "../contract";

export class RunLog {
  /** Milliseconds of the clock at which the run would have begun without interruptions. */
  private readonly began: number;

  constructor(
    readonly lines: LogLine[],
    elapsed: number,
    private readonly now: () => number,
    private readonly heap: () => number,
  ) {
    this.began = now() - 1000 * elapsed;
  }

  get elapsed(): number {
    return (this.now() - this.began) / 1000;
  }

  get stepSeconds(): number[] {
    return this.lines.flatMap((line) => (line.kind === "step" ? [Number(line["seconds"])] : []));
  }

  start(counters: Counters, factor: number): void {
    this.write("start", 0, {
      head: counters.head,
      head_images: counters.headImages,
      head_factor: factor,
      ...named(counters.estimate, "estimated_"),
      ...named(counters.start, "validation_"),
      memory: this.heap(),
    });
  }

  step(counters: Counters, values: Record<string, number>): void {
    const memory = this.heap();
    this.write("step", counters.step, { epoch: counters.epoch + 1, ...values, memory });
  }

  epoch(counters: Counters, training: Score, validation: Score | null, best: boolean): void {
    const scores = { ...named(training), ...named(validation, "validation_") };
    this.write("epoch", counters.step, { epoch: counters.epoch + 1, ...scores, best });
  }

  refit(
    counters: Counters,
    head: { name: string; score: Score | null },
    validation: Score | null,
    best: boolean,
  ): void {
    const scores = { ...named(head.score, "estimated_"), ...named(validation, "validation_") };
    this.write("refit", counters.step, { head: head.name, ...scores, best });
  }

  end(counters: Counters): void {
    this.write("end", counters.step, {
      reason: counters.finished,
      best_step: counters.bestStep,
      ...named(counters.best, "best_"),
      memory: this.heap(),
    });
  }

  private write(kind: LogLine["kind"], step: number, values: Record<string, unknown>): void {
    const elapsed = Math.round(1000 * this.elapsed) / 1000;
    this.lines.push({ kind, step, ...values, elapsed });
  }
}

/** Seconds of a step as a moving average with a half-life of seven steps. */
export class Pace {
  seconds = 0;
  private last: number;

  constructor(private readonly now: () => number) {
    this.last = now();
  }

  /** Leaves out the time since the last step, such as that of a validation. */
  restart(): void {
    this.last = this.now();
  }

  /** Counts a step; returns the seconds that it took. */
  tick(): number {
    const now = this.now();
    const taken = (now - this.last) / 1000;
    this.last = now;
    this.seconds = this.seconds ? 0.9 * this.seconds + 0.1 * taken : taken;
    return taken;
  }
}

/** Loss and metric by name; null where they are unknown. */
function named(score: Score | null, prefix = ""): Record<string, number | null> {
  return { [`${prefix}loss`]: score?.loss ?? null, [`${prefix}accuracy`]: score?.value ?? null };
}
