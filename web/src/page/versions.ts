/** Two versions of the site, and what of the newer one has to be fetched. */

/** `site.json`: the hash of each file by its path, and of all of them. */
export interface Listing {
  version: string;
  files: Record<string, string>;
}

/** What computes on a GPU: it is loaded where a run needs it, and not kept, since a run may do without. */
const LAZY = /^worker-webgpu-|\.jspi\./;

/** Paths of what is kept whose files are the same as before, and all others. */
export function plan(before: Listing | undefined, now: Listing) {
  const paths = Object.keys(now.files).filter((path) => !LAZY.test(path));
  const same = (path: string) => before?.files[path] === now.files[path];
  return { reused: paths.filter(same), fetched: paths.filter((path) => !same(path)) };
}
