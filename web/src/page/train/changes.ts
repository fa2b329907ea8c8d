/** What has changed on the page since a run began, which goes on with what it began with. */
import type { Checkpoint, Label } from "../../contract";
import type { Project } from "../project";

export interface Changes {
  /** Classes of the run that have other names now, or were deleted. */
  gone: string[];
  /** How many photos of the run were deleted, how many have other labels, and how many came later. */
  deleted: number;
  relabeled: number;
  added: number;
}

export function changesSince(
  { classes, photos }: Pick<Checkpoint, "classes" | "photos">,
  project: Pick<Project, "all" | "classes">,
): Changes {
  const names = new Map(project.classes.map(({ id, name }) => [id, name]));
  const present = new Set(names.values());
  const common = new Set(classes.filter((name) => present.has(name)));
  /** What of the labels can be compared: a class that is renamed is no news of each of its photos. */
  const inBoth = (labels: string[]) =>
    labels
      .filter((name) => common.has(name))
      .sort()
      .join("\n");
  // A run of classes has two or more of them, and one label for each photo.
  const before = (label: Label) =>
    label.length === classes.length
      ? classes.filter((_, i) => label[i])
      : label.map((index) => classes[index]!);
  const now = new Map(
    project.all().map(({ id, owners }) => [id, inBoth(owners.map((owner) => names.get(owner)!))]),
  );
  const kept = photos.filter(({ id }) => now.has(id));
  return {
    gone: classes.filter((name) => !common.has(name)),
    deleted: photos.length - kept.length,
    relabeled: kept.filter(({ id, label }) => inBoth(before(label)) !== now.get(id)).length,
    added: now.size - kept.length,
  };
}
