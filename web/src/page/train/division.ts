/** Which photos are held out to validate. */
import type { Label, PhotoEntry, Split, TaskName } from "../../contract";
import type { ClassRecord, PhotoRecord } from "../../storage/schema";

/** As on the command line: a fifth of each class of ten or more photos; of all photos with attributes. */
const FRACTION = 0.2;
const FEWEST = 10;

/**
 * The photos of a run with their labels and parts, those of each class together.
 *
 * Photos that came with a part keep it, and others of their class are trained on. The end of each
 * recording is held out, not frames from between others, which would be nearly the same as their
 * neighbors.
 */
export function divide(
  task: TaskName,
  classes: ClassRecord[],
  photos: PhotoRecord[],
): PhotoEntry[] {
  const entries = (group: PhotoRecord[], labelOf: (photo: PhotoRecord) => Label) => {
    // folders `train` and `test` alone leave it to the run what validates
    const divided = group.some((photo) => photo.part === "validation");
    const held = divided ? new Set<number>() : heldOut(group);
    return group.map((photo) => ({
      id: photo.id,
      name: photo.name,
      label: labelOf(photo),
      split: (held.has(photo.id) ? "validation" : (photo.part ?? "train")) satisfies Split,
    }));
  };
  if (task === "attributes") {
    return entries(photos, ({ owners }) => classes.map(({ id }) => Number(owners.includes(id))));
  }
  return classes.flatMap(({ id }, index) => {
    const label = [index]; // one for all, of which there may be thousands
    const own = photos.filter(({ owners }) => owners.includes(id));
    return entries(own, () => label);
  });
}

function heldOut(photos: PhotoRecord[]): Set<number> {
  const count = photos.length >= FEWEST ? Math.round(photos.length * FRACTION) : 0;
  const places = recordingPlaces(photos);
  const key = (photo: PhotoRecord) => places.get(photo.id) ?? scattered(photo.id);
  const order = [...photos].sort((a, b) => key(a) - key(b) || a.id - b.id);
  return new Set(order.slice(0, count).map((photo) => photo.id));
}

/** How far each recorded frame is from the end of its recording, 0 to 1. */
function recordingPlaces(photos: PhotoRecord[]): Map<number, number> {
  const recordings = new Map<number, PhotoRecord[]>();
  for (const photo of photos) {
    if (!photo.recording) continue;
    const frames = recordings.get(photo.recording);
    if (frames) frames.push(photo);
    else recordings.set(photo.recording, [photo]);
  }
  const places = new Map<number, number>();
  for (const frames of recordings.values()) {
    frames.forEach(({ id }, i) => places.set(id, 1 - (i + 0.5) / frames.length));
  }
  return places;
}

/**
 * A number from 0 to 1 that follows from the photo alone. Those of any photos in a row are spread
 * evenly (multiples of the golden ratio), so that some of each attribute are held out.
 */
function scattered(id: number): number {
  return (Math.imul(id, 0x9e3779b9) >>> 0) / 2 ** 32;
}
