/** Which photos there are and their labels: by tables if there are fewer than two classes. */
import { areOfPhotos, byFolders, foldersOf, type Layout, wrapper } from "./layout";
import { isTable } from "./rows";
import { byTables, chooseTables, type Table } from "./tables";

/**
 * The labels of files; null if it is not certain which of several tables has them.
 *
 * @throws UserError if a table cannot be read.
 */
export async function findLabels(
  paths: string[],
  read: (path: string) => Promise<Table>,
): Promise<Layout | null> {
  const chosen = await chooseTables(paths, wrapper(foldersOf(paths)), read);
  const folders = byFolders(paths);
  const { classes } = folders;
  const divided = classes.length > 1 && !(chosen.length && areOfPhotos(classes));
  if (divided) return folders;
  if (chosen.length) return byTables(chosen, paths);
  return paths.filter(isTable).length > 1 ? null : folders;
}
