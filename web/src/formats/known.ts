/** What photos of a run's classes look like, as tensors; see `pocketune.device.use.known`. */
import { UserError, type Known, type State } from "../contract";

const FIELDS = ["center", "directions", "gains", "means", "threshold"] as const;

/** Kind of the file of a run. */
export const KNOWN_KIND = "known classes";

/** The tensors by name, behind a prefix. */
export function knownTensors(known: Known, prefix = ""): State {
  return new Map(FIELDS.map((name) => [prefix + name, known[name]]));
}

/** The description with these tensors. Throws UserError if they do not fit together. */
export function knownOf(tensors: State, where: string): Known {
  const shape = (name: string): number[] => tensors.get(name)?.shape ?? [-1, -1, -1];
  const [center, gains, directions, means] = ["center", "gains", "directions", "means"].map(shape);
  const [size, rank] = [center![0], gains![0]];
  const fits =
    center!.length === 1 &&
    gains!.length === 1 &&
    shape("threshold").length === 0 &&
    directions!.join() === [rank, size].join() &&
    means!.length === 2 &&
    means![1] === size;
  if (!fits) throw new UserError(`${where} does not describe known classes; train the run again`);
  return Object.fromEntries(FIELDS.map((name) => [name, tensors.get(name)!])) as unknown as Known;
}
