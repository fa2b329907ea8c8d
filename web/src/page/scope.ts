/** Names of what a browser keeps by host, where studios may lie in several folders. */

/** The name with the folder of the page; as it is for a page that lies in none. */
export function scoped(name: string, address = location.href): string {
  const folder = new URL("./", address).pathname;
  return folder === "/" ? name : name + folder;
}
