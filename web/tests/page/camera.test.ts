import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Camera } from "../../src/page/collect/camera";

interface Stream {
  isOn: boolean;
  /** Unplug it. */
  end(): void;
  getTracks(): { stop(): void }[];
}

let camera: Camera;
let streams: Stream[];
let lost: string[];
/** The sides of the device that were asked for. */
let sides: unknown[];
/** What the user answers when the page asks for the camera, one by one. */
let answers: ((agreed: boolean) => void)[];

beforeEach(() => {
  [streams, answers, sides] = [[], [], []];
  const getUserMedia = ({ video }: { video: MediaTrackConstraints }) =>
    new Promise((resolve, reject) => {
      sides.push(video.facingMode);
      answers.push((agreed) => {
        if (!agreed) return reject(new DOMException("", "NotAllowedError"));
        const track = Object.assign(new EventTarget(), { stop: () => (stream.isOn = false) });
        const end = () => track.dispatchEvent(new Event("ended"));
        const stream = { isOn: true, end, getTracks: () => [track] };
        streams.push(stream);
        resolve(stream);
      });
    });
  vi.stubGlobal("navigator", { mediaDevices: { getUserMedia } });
  vi.stubGlobal(
    "OffscreenCanvas",
    class {
      getContext() {}
    },
  );
  const video = { play: async () => undefined } as unknown as HTMLVideoElement;
  lost = [];
  camera = new Camera(video, (error) => lost.push(error.message));
});
afterEach(() => void vi.unstubAllGlobals());

const on = () => streams.map(({ isOn }) => isOn);

it("a camera goes off when it is closed", async () => {
  const opening = camera.open();
  answers[0]!(true);
  await opening;
  expect([camera.isOpen, on()]).toEqual([true, [true]]);
  camera.close();
  expect([camera.isOpen, on()]).toEqual([false, [false]]);
});

it("a camera that is closed before the user has agreed stays off", async () => {
  const opening = camera.open();
  camera.close();
  answers[0]!(true);
  await opening;
  expect([camera.isOpen, on()]).toEqual([false, [false]]);
});

it("of two cameras that are asked for, the last one is on", async () => {
  const both = [camera.open(), camera.turn()];
  answers[1]!(true);
  answers[0]!(true);
  await Promise.all(both);
  expect([camera.isOpen, on()]).toEqual([true, [true, false]]);
});

it("the side that was chosen is that of the next camera, too", () => {
  void camera.open();
  void camera.turn();
  void new Camera(camera.video, () => undefined).open();
  const [first, ...others] = sides;
  expect(new Set(sides)).toEqual(new Set(["environment", "user"]));
  expect(others).not.toContain(first);
});

it("a camera that is unplugged is told in a sentence, but none that was closed before", async () => {
  const opening = camera.open();
  answers[0]!(true);
  await opening;
  streams[0]!.end();
  streams[0]!.end();
  expect([camera.isOpen, lost]).toEqual([false, [expect.stringContaining("camera has gone")]]);
});

it("a camera that is refused is told in a sentence, if it is still wanted", async () => {
  const refused = camera.open();
  answers[0]!(false);
  await expect(refused).rejects.toThrow("The page may not use the camera; allow it");
  const left = camera.open();
  camera.close();
  answers[1]!(false);
  await expect(left).resolves.toBeUndefined();
});
