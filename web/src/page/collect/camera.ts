/** The camera of the device, and its frames. */
import { UserError } from "../../contract";
import { texts } from "../texts";
import { SIDE, type Signature, signatureOf } from "./distinct";

/** Shorter side of a frame that is kept, in pixels. */
const FRAME = 384;

/** The side that was chosen holds for all cameras of the page. */
let facing: "user" | "environment" = "environment";

export class Camera {
  private stream: MediaStream | undefined;
  /** Counts what is asked of it: a camera that comes after something else was asked is let go. */
  private asked = 0;
  private readonly small = new OffscreenCanvas(SIDE, SIDE).getContext("2d", {
    willReadFrequently: true,
  })!;

  constructor(
    readonly video: HTMLVideoElement,
    /** Called when it was unplugged, or its use was ended elsewhere. */
    private readonly lost: (error: UserError) => void,
  ) {
    video.muted = true;
    video.playsInline = true;
  }

  /**
   * Open it, unless it is closed before the user has agreed.
   *
   * @throws UserError if there is no camera, or the page may not use it.
   */
  async open(): Promise<void> {
    this.close();
    const { asked } = this;
    try {
      if (!navigator.mediaDevices) throw new DOMException("", "NotFoundError");
      const stream = await navigator.mediaDevices.getUserMedia({
        video: { facingMode: facing, width: { ideal: 640 }, height: { ideal: 480 } },
      });
      if (asked !== this.asked) return end(stream);
      this.stream = stream;
      const ended = () => {
        if (stream !== this.stream) return;
        this.close();
        this.lost(new UserError(texts.cameraLost));
      };
      for (const track of stream.getTracks()) track.addEventListener("ended", ended);
    } catch (error) {
      if (asked !== this.asked) return;
      throw new UserError(reason(error), { cause: error });
    }
    this.video.srcObject = this.stream;
    await this.video.play().catch(() => undefined); // closed again meanwhile
  }

  /** Open the camera on the other side of the device. */
  turn(): Promise<void> {
    facing = facing === "user" ? "environment" : "user";
    return this.open();
  }

  get isOpen(): boolean {
    return this.stream !== undefined;
  }

  get hasFrame(): boolean {
    return this.isOpen && this.video.readyState >= HTMLMediaElement.HAVE_CURRENT_DATA;
  }

  close(): void {
    this.asked++;
    if (this.stream) end(this.stream);
    this.stream = undefined;
    this.video.srcObject = null;
  }

  /** What tells whether a frame is new. */
  signature(): Signature {
    this.small.drawImage(this.video, 0, 0, SIDE, SIDE);
    return signatureOf(this.small.getImageData(0, 0, SIDE, SIDE).data);
  }

  /** The present frame as a canvas, as large as is kept. */
  frame(): OffscreenCanvas {
    const { videoWidth: width, videoHeight: height } = this.video;
    const factor = Math.min(1, FRAME / Math.min(width, height));
    const canvas = new OffscreenCanvas(Math.round(width * factor), Math.round(height * factor));
    canvas.getContext("2d")!.drawImage(this.video, 0, 0, canvas.width, canvas.height);
    return canvas;
  }
}

/** A frame as it is kept. */
export function asJpeg(frame: OffscreenCanvas): Promise<Blob> {
  return frame.convertToBlob({ type: "image/jpeg", quality: 0.9 });
}

function end(stream: MediaStream): void {
  for (const track of stream.getTracks()) track.stop();
}

function reason(error: unknown): string {
  const name = error instanceof DOMException ? error.name : "";
  if (name === "NotAllowedError" || name === "SecurityError") return texts.cameraDenied;
  if (name === "NotReadableError" || name === "AbortError") return texts.cameraBusy;
  return texts.noCamera;
}
