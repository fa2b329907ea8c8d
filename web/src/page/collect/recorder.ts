/** The camera of a class: hold a button, and distinct frames become photos. */
import type { NewPhoto } from "../../storage/schema";
import { announce, button, h, setText } from "../dom";
import { attempting, fail } from "../messages";
import type { Project } from "../project";
import { texts } from "../texts";
import { asJpeg, Camera } from "./camera";
import { Distinct } from "./distinct";
import { thumbnailOf } from "./prepare";

/** Milliseconds between frames that are looked at. */
const EVERY = 100;
const TOGETHER = 8;

export class Recorder {
  readonly element: HTMLElement;
  private readonly camera: Camera;
  private readonly hold: HTMLButtonElement;
  private held = false;
  private isClosed = false;
  /** Ends when all frames of the recordings so far are kept. */
  private recorded: Promise<void> = Promise.resolve();

  constructor(
    private readonly project: Project,
    private readonly owners: number[],
    /** Called with whether the focus was here. */
    private readonly closed: (focused: boolean) => void,
  ) {
    const video = h("video", { "aria-label": texts.cameraPicture });
    this.camera = new Camera(video, (error) => {
      this.close();
      fail(error);
    });
    this.hold = this.holdButton();
    const buttons = h(
      "div",
      { class: "row" },
      button(
        texts.otherCamera,
        "plain",
        attempting(() => this.camera.turn()),
      ),
      button(texts.closeCamera, "plain", () => this.close()),
    );
    const help = h("small", {}, texts.recordHelp);
    this.element = h("div", { class: "recorder" }, video, this.hold, help, buttons);
  }

  /** @throws UserError if there is no camera, or the page may not use it. */
  async open(): Promise<void> {
    await this.camera.open();
    this.hold.focus();
  }

  /** For good: its class may have opened another one when it is closed again. */
  close(): void {
    if (this.isClosed) return;
    this.isClosed = true;
    this.release();
    this.camera.close();
    const focused = this.element.contains(document.activeElement);
    this.element.remove();
    this.closed(focused);
  }

  private holdButton(): HTMLButtonElement {
    const made = h("button", { type: "button", class: "primary record" }, texts.record);
    const isKey = (event: KeyboardEvent) => event.key === " " || event.key === "Enter";
    made.addEventListener("pointerdown", (event) => {
      made.setPointerCapture(event.pointerId);
      this.press();
    });
    for (const name of ["pointerup", "pointercancel", "blur"]) {
      made.addEventListener(name, () => this.release());
    }
    made.addEventListener("contextmenu", (event) => event.preventDefault()); // of a long touch
    made.addEventListener("keydown", (event) => {
      if (!isKey(event)) return;
      event.preventDefault();
      if (!event.repeat) this.press();
    });
    made.addEventListener("keyup", (event) => {
      if (isKey(event)) this.release();
    });
    return made;
  }

  private press(): void {
    if (this.held || !this.camera.hasFrame) return;
    this.held = true;
    this.recorded = this.recorded.then(() => this.record());
  }

  private release(): void {
    this.held = false;
  }

  private async record(): Promise<void> {
    if (!this.held) return; // the one before has gone on as long
    this.hold.classList.add("held");
    const recording = this.project.nextRecording();
    const seen = new Distinct();
    let waiting: NewPhoto[] = [];
    let count = 0;
    const keep = async () => {
      const photos = waiting;
      waiting = [];
      if (photos.length) await this.project.add(photos);
    };
    try {
      do {
        if (this.camera.hasFrame && seen.accept(this.camera.signature())) {
          count++;
          waiting.push(await this.photo(recording, count));
          setText(this.hold, texts.recording(count));
        }
        if (waiting.length >= TOGETHER) await keep();
        await new Promise((resolve) => setTimeout(resolve, EVERY));
      } while (this.held);
      await keep();
      announce(texts.imported(count, 0));
    } catch (error) {
      this.held = false;
      fail(error);
    } finally {
      this.hold.classList.remove("held");
      setText(this.hold, texts.record);
    }
  }

  private async photo(recording: number, count: number): Promise<NewPhoto> {
    const frame = this.camera.frame();
    const [blob, thumbnail] = await Promise.all([asJpeg(frame), thumbnailOf(frame)]);
    const name = `camera-${recording}-${String(count).padStart(4, "0")}.jpg`;
    return { name, owners: this.owners, part: null, recording, blob, thumbnail };
  }
}
