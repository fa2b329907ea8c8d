/** The page: its four parts, one of which is seen, and what it finds in the browser. */
import { UserError } from "../contract";
import { Store } from "../storage/store";
import { DATABASE, type ModelRecord } from "../storage/schema";
import { CollectView } from "./collect/view";
import type { Given } from "./collect/sources";
import { announce, h } from "./dom";
import { Catalog } from "./kits";
import { clear, failForGood, messages, note } from "./messages";
import { Project } from "./project";
import { keepForOffline } from "./offline";
import { scoped } from "./scope";
import { onlyTab } from "./tabs";
import { TakeView } from "./take/view";
import { texts } from "./texts";
import { TrainView } from "./train/view";
import { UseView } from "./use/view";

const LOCK = scoped("pocketune-studio");
const PARTS = ["collect", "train", "use", "take"] as const;
type Part = (typeof PARTS)[number];

async function main(): Promise<void> {
  announce(""); // screen readers know a live region that was there before it said something
  const root = document.querySelector("#studio")!;
  const place = h("main", { id: "content", tabIndex: -1 });
  const links = new Map(
    PARTS.map((part) => [part, h("a", { href: `#${part}` }, texts.parts[part])]),
  );
  const skip = (event: Event) => {
    event.preventDefault(); // the address goes on naming the part
    place.focus();
  };
  root.append(
    h("a", { class: "skip", href: "#content", on: { click: skip } }, texts.skip),
    h(
      "header",
      { class: "top" },
      h("h1", {}, texts.title),
      h("nav", { "aria-label": texts.title }, ...links.values()),
      h("small", { class: "private" }, texts.private),
    ),
    messages(),
    place,
  );
  if (!globalThis.OffscreenCanvas || !globalThis.DecompressionStream || !globalThis.Worker) {
    throw new UserError(texts.noWorker);
  }
  if (!globalThis.isSecureContext) note(texts.insecure);
  await onlyTab(LOCK);
  await keepForOffline();
  await open(place, links);
}

interface Views {
  collect: CollectView;
  train: TrainView;
  use: UseView;
  take: TakeView;
}

async function open(place: HTMLElement, links: Map<Part, HTMLAnchorElement>): Promise<void> {
  const store = await Store.open(scoped(DATABASE));
  const project = await Project.open(store);
  const catalog = new Catalog(store);
  const show = (model: ModelRecord | undefined) => {
    train.show(model);
    use.show(model);
    take.show(model);
  };
  const others = async ({ kits, runs, tensors }: Given) => {
    await loading; // a kit may be there
    for (const file of kits) await train.kits.add(file);
    for (const file of [...runs, ...tensors].slice(-1)) await take.open(file);
  };
  const collect = new CollectView(project, others, () => go("train"));
  const train = new TrainView(project, catalog, {
    done: (model) => show(model),
    isImporting: () => collect.isImporting,
    toCollect: () => go("collect"),
    toUse: () => go("use"),
  });
  const use = new UseView(project, catalog, others, () => go("train"));
  const take = new TakeView(project, catalog, {
    loaded: () => loading,
    opened: async (model) => {
      await catalog.load();
      const kit = catalog.find(model.kitHash);
      if (kit) await train.kits.choose(kit);
      show(model);
    },
    forget: async () => {
      await Promise.all([collect.forget(), train.forget()]);
      await project.forget();
      show(undefined);
      await catalog.load();
      train.kits.show();
    },
  });
  const views = { collect, train, use, take };
  route(views, links);
  addEventListener("hashchange", () => {
    if (!named()) return;
    clear();
    route(views, links, true);
  });
  place.append(...PARTS.map((part) => views[part].element));
  acceptDrops(views); // from now on, or the browser would open a file in place of the page
  addEventListener("beforeunload", (event) => {
    if (train.isRunning || collect.isImporting) event.preventDefault(); // asks before the tab is closed
  });
  const load = async () => {
    await catalog.load();
    train.kits.show();
    show(await store.model());
    return train.offerLast();
  };
  const loading = load();
  if (await loading) go("train");
}

function go(part: Part): void {
  location.hash = part;
}

/** The part in the address; the first one where there is no name, nothing for an unknown one. */
function named(): Part | undefined {
  const name = location.hash.slice(1) || PARTS[0];
  return PARTS.find((part) => part === name);
}

function route(views: Views, links: Map<Part, HTMLAnchorElement>, focus = false): void {
  const now = named() ?? PARTS[0];
  for (const part of PARTS) {
    views[part].element.hidden = part !== now;
    const link = links.get(part)!;
    if (part === now) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (now !== "collect") views.collect.leave();
  if (now === "use") views.use.enter();
  else views.use.leave();
  if (now === "take") views.take.enter();
  document.title = `${texts.parts[now]} – ${texts.title}`;
  if (!focus) return;
  scrollTo(0, 0);
  views[now].element.querySelector("h2")?.focus();
}

function acceptDrops({ collect, use, take }: Views): void {
  const { body } = document;
  let inside = 0;
  const over = (change: number) => {
    inside = Math.max(0, inside + change);
    body.classList.toggle("dragging", inside > 0);
  };
  body.addEventListener("dragenter", () => over(1));
  body.addEventListener("dragleave", () => over(-1));
  body.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", () => over(-inside), true);
  body.addEventListener("drop", (event) => {
    event.preventDefault();
    if (!event.dataTransfer) return;
    if (!use.element.hidden) use.drop(event.dataTransfer);
    else {
      collect.drop(event.dataTransfer);
      if (!take.element.hidden) announce(texts.importingWords);
    }
  });
}

main().catch(failForGood);
