/** What a run is doing: its phase, its figures and its curves. */
import { type Checkpoint, type Phase, type TrainEvent, UserError } from "../../contract";
import { announce, h, setText } from "../dom";
import { sentence } from "../messages";
import { texts } from "../texts";
import { Chart } from "./chart";

/** Milliseconds between two words to screen readers, at least. */
const SPOKEN = 10_000;
const FIGURES = ["accuracy", "imagesPerSecond", "heap", "device", "left"] as const;

export class Curves {
  readonly element: HTMLElement;
  private readonly phase = h("h3", {});
  /** Why the run has failed. */
  private readonly reason = h("p", { hidden: true });
  private readonly bar = h("progress", { max: 1, value: 0, "aria-label": texts.trainTitle });
  private readonly values = Object.fromEntries(
    FIGURES.map((name) => [name, h("dd", {}, "–")]),
  ) as Record<(typeof FIGURES)[number], HTMLElement>;
  private readonly loss = new Chart({ title: texts.lossChart, format: texts.lossOf, low: 0 });
  private readonly accuracy = new Chart({
    title: texts.accuracyChart,
    format: texts.percent,
    low: 0,
    high: 1,
  });
  private readonly figures = new Map([
    [this.loss, figure(texts.lossChart, this.loss)],
    [this.accuracy, figure(texts.accuracyChart, this.accuracy)],
  ]);
  private best = 0;
  /** Epochs of the run; 0 before the first one begins. */
  private epochs = 0;
  /** Epochs that are done. */
  private done = 0;
  /** What was said before the pause. */
  private before = "";
  private spoken = 0;

  constructor() {
    const figures = h(
      "dl",
      { class: "figures" },
      ...FIGURES.map((name) => h("div", {}, h("dt", {}, texts[name]), this.values[name])),
    );
    this.values.device.className = "words";
    this.element = h(
      "div",
      { class: "card run", hidden: true },
      this.phase,
      this.reason,
      this.bar,
      figures,
      h("div", { class: "charts" }, ...this.figures.values()),
    );
  }

  begin(): void {
    this.element.hidden = false;
    this.reason.hidden = true;
    this.showAll(true);
    this.best = 0;
    this.epochs = 0;
    this.done = 0;
    this.loss.clear();
    this.accuracy.clear();
    for (const value of Object.values(this.values)) setText(value, "–");
    this.say(texts.phases.opening);
    this.bar.removeAttribute("value"); // how long this takes is not known
  }

  /** Show what a run had done before it was interrupted. */
  restore({ counters, log, settings }: Checkpoint): void {
    this.epochs = settings.epochs;
    this.done = counters.epoch;
    this.accuracy.clear(this.epochs);
    for (const line of log) {
      if (line.kind === "step") this.loss.add(line.step, Number(line["loss"]));
      const accuracy = line["validation_accuracy"];
      if (typeof accuracy !== "number" || line.kind === "refit") continue;
      this.best = Math.max(this.best, accuracy);
      setText(this.values.accuracy, texts.percent(this.best));
      this.accuracy.add(Number(line["epoch"] ?? 0), accuracy);
    }
  }

  stopping(): void {
    this.ending(texts.stopping);
  }

  /** Until the run has ended, there is nothing more to show. */
  private ending(said: string): void {
    this.say(said);
    setText(this.values.left, "–");
    this.bar.removeAttribute("value");
  }

  /** Show why the run has failed, also when the message about that is gone. */
  fail(reason: string): void {
    setText(this.reason, reason);
    this.reason.hidden = false;
    this.end(texts.trainFailed);
  }

  private end(said: string): void {
    this.say(said);
    this.bar.value = 0;
    this.showAll(false);
  }

  /** While nothing more comes, no time is left, and a chart has a line or is left out. */
  private showAll(going: boolean): void {
    this.values.left.parentElement!.hidden = !going;
    for (const [chart, shown] of this.figures) shown.hidden = !going && !chart.hasLine;
  }

  on(event: TrainEvent): void {
    if (event.kind === "device") setText(this.values.device, texts.deviceOf(event.choice));
    else if (event.kind === "phase") this.begins(event.phase);
    else if (event.kind === "progress") this.progress(event);
    else if (event.kind === "step") this.loss.add(event.step, event.loss);
    else if (event.kind === "epoch") this.epoch(event);
    else if (event.kind === "paused") this.pause();
    else if (event.kind === "stopped") this.end(texts.stopped);
    else if (event.kind === "error") this.fail(sentence(new UserError(event.message)));
    else if (event.kind === "done") {
      this.bar.value = this.bar.max;
      this.showAll(false);
      this.say(texts.phases.done);
    }
  }

  /** Within epochs, steps and validation take turns, which is no news. */
  private begins(phase: Phase): void {
    if (phase === "result") this.ending(texts.phases.result);
    else if (!this.epochs || phase === "done") this.say(texts.phases[phase]);
    else if (phase === "features" || phase === "head") setText(this.phase, texts.phases[phase]);
    else if (phase === "training") {
      setText(this.phase, texts.epoch(Math.min(this.done + 1, this.epochs), this.epochs));
    }
  }

  private pause(): void {
    this.before = this.phase.textContent;
    this.say(texts.paused);
  }

  goOn(): void {
    this.say(this.before);
  }

  private progress(event: TrainEvent & { kind: "progress" }): void {
    this.bar.max = Math.max(1, event.total);
    this.bar.value = event.done;
    setText(this.values.imagesPerSecond, texts.number(Math.round(event.imagesPerSecond)));
    setText(this.values.heap, texts.size(event.heapBytes));
    setText(this.values.left, texts.duration(event.secondsLeft));
  }

  private epoch(event: TrainEvent & { kind: "epoch" }): void {
    const { epoch, epochs, validationAccuracy: accuracy } = event;
    if (epochs !== this.epochs) {
      this.epochs = epochs;
      this.accuracy.clear(epochs);
    }
    this.done = epoch;
    if (accuracy === null) {
      setText(this.values.accuracy, texts.noHeldOut);
      this.values.accuracy.className = "words";
      return;
    }
    this.values.accuracy.className = "";
    this.best = Math.max(this.best, accuracy);
    this.accuracy.add(epoch, accuracy);
    setText(this.values.accuracy, texts.percent(this.best));
    if (performance.now() - this.spoken < SPOKEN) return;
    this.spoken = performance.now();
    announce(texts.epochDone(epoch, texts.percent(accuracy)));
  }

  private say(text: string): void {
    if (this.phase.textContent === text) return;
    setText(this.phase, text);
    announce(text);
  }
}

function figure(title: string, chart: Chart): HTMLElement {
  return h("figure", {}, h("figcaption", {}, title), chart.element);
}
