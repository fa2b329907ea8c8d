/** The kits that can be chosen: those of the site, and those that were dropped onto the page. */
import { type Kit, type TaskName, UserError } from "../contract";
import { readKit } from "../formats/kit";
import { readModel } from "../formats/run";
import { writeZip } from "../formats/zip";
import type { Store } from "../storage/store";
import { texts } from "./texts";

/** What is known of a kit before it is opened. */
export interface Offer {
  hash: string;
  name: string;
  network: Record<string, unknown>;
  method: Record<string, unknown>;
  size: number;
  task: TaskName;
  classes: string[];
  trained: number;
  /** Address on the site; null for a kit that is kept in this browser. */
  path: string | null;
}

/** A kit that is kept and cannot be read, as one of an older version of the page. */
export interface Unusable {
  hash: string;
  name: string;
  error: unknown;
}

/** Of a hash, which tell kits apart. */
const DIGITS = 12;
const MOST_BYTES = 512 << 20;
const LEARNED: readonly string[] = ["classification", "attributes"] satisfies TaskName[];

export class Catalog {
  offers: Offer[] = [];
  unusable: Unusable[] = [];
  /** Kept kits that were read, which takes a while: a hash is always that of the same kit. */
  private readonly opened = new Map<string, Offer>();

  constructor(private readonly store: Store) {}

  /** Read which kits there are. Without the site's list, which needs a network once, those kept. */
  async load(): Promise<void> {
    const [site, kept] = await Promise.all([siteKits(), this.store.kits()]);
    const known = new Set(site.map(({ hash }) => hash));
    const own: Offer[] = [];
    const unusable: Unusable[] = [];
    for (const { hash, name, zip } of kept) {
      if (known.has(hash)) continue;
      try {
        const offer = this.opened.get(hash) ?? offerOf(name, await readKit(zip, name));
        this.opened.set(hash, offer);
        own.push({ ...offer, name });
      } catch (error) {
        unusable.push({ hash, name, error });
      }
    }
    this.unusable = unusable;
    const offers = [...site, ...own].filter(({ task }) => LEARNED.includes(task));
    this.offers = offers.sort((a, b) => a.trained - b.trained); // the quickest first
  }

  find(hash: string | null): Offer | undefined {
    return this.offers.find((each) => each.hash === hash);
  }

  /**
   * The bytes of a kit.
   *
   * @throws UserError if it cannot be had.
   */
  async zip(hash: string): Promise<Uint8Array> {
    const kept = await this.store.kit(hash);
    if (kept) return kept.zip;
    const path = this.find(hash)?.path;
    const answer = path ? await fetch(path).catch(() => null) : null;
    if (!answer?.ok) throw new UserError(texts.kitGone);
    const zip = new Uint8Array(await answer.arrayBuffer());
    // The site may have another kit there by now.
    if ((await readKit(zip, path!)).hash !== hash) throw new UserError(texts.siteChanged);
    return zip;
  }

  /** Keep a kit that a run needs, which the site may not have later. */
  async keep(hash: string): Promise<Uint8Array> {
    const zip = await this.zip(hash);
    if (!(await this.store.kit(hash))) {
      await this.store.addKit({ hash, name: this.find(hash)?.name ?? texts.kits, zip });
    }
    return zip;
  }

  /**
   * Check a kit and keep it.
   *
   * @throws UserError if something is wrong with it, or the studio cannot train it.
   */
  async add(file: File): Promise<Offer> {
    const zip = await bytesOf(file);
    const { kit, isRun } = await readModel(zip, file.name);
    if (isRun) throw new UserError(texts.aRun(file.name));
    const name = file.name.replace(/\.zip$/i, "");
    await this.store.addKit({ hash: kit.hash, name, zip });
    await this.load();
    return this.find(kit.hash)!;
  }

  /** Keep the kit of a run that was opened. */
  async keepOpened(kit: Kit, name: string): Promise<void> {
    if (this.find(kit.hash)) await this.keep(kit.hash);
    else await this.store.addKit({ hash: kit.hash, name, zip: writeZip(kit.files) });
  }

  /** @throws UserError if the network in use or an interrupted run needs the kit. */
  async remove(hash: string): Promise<void> {
    const [model, checkpoint] = await Promise.all([this.store.model(), this.store.checkpoint()]);
    if (model?.kitHash === hash) throw new UserError(texts.kitOfModel);
    if (checkpoint?.kitHash === hash) throw new UserError(texts.kitOfCheckpoint);
    await this.store.removeKit(hash);
    await this.load();
  }
}

/** @throws UserError if the file is too large for a kit, a run or a delta. */
export async function bytesOf(file: File): Promise<Uint8Array> {
  if (file.size > MOST_BYTES) throw new UserError(texts.kitTooLarge(file.name));
  return new Uint8Array(await file.arrayBuffer());
}

async function siteKits(): Promise<Offer[]> {
  const answer = await fetch("site.json").catch(() => null);
  const listing: unknown = answer?.ok ? await answer.json().catch(() => null) : null;
  return (listing as { kits: Offer[] } | null)?.kits ?? [];
}

function offerOf(name: string, { manifest, hash }: Kit): Offer {
  const values = manifest.parameters.map(({ shape }) => shape.reduce((a, b) => a * b, 1));
  return {
    hash,
    name,
    network: manifest.network,
    method: manifest.method,
    size: manifest.size,
    task: manifest.task.name,
    classes: manifest.task.classes,
    trained: values.reduce((a, b) => a + b, 0),
    path: null,
  };
}

/** The network and method of a kit in a line; and its hash, where others may have its name. */
export function describe({ network, method, size, trained, path, hash }: Offer): string {
  const width =
    network["width"] === undefined || network["width"] === 1 ? "" : ` ${String(network["width"])}`;
  const called = String(network["name"]);
  const name = `${texts.networkNames[called] ?? called}${width}`;
  const learned = String(method["name"]);
  const facts = texts.kitFacts(name, texts.methodNames[learned] ?? learned, size, trained);
  return path === null ? `${facts}; ${texts.keptKit(hash.slice(0, DIGITS))}` : facts;
}
