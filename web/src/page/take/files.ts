/** The files that are taken along, and those that are opened. */
import type { Kit } from "../../contract";
import { readDelta, writeDelta } from "../../formats/delta";
import { writeModel } from "../../formats/export";
import { readKit } from "../../formats/kit";
import { readModel, type Trained, writeRun } from "../../formats/run";
import type { ModelRecord } from "../../storage/schema";
import { version } from "../../../package.json";
import { bytesOf, type Catalog } from "../kits";
import { texts } from "../texts";

export async function runFile(model: ModelRecord, catalog: Catalog): Promise<BlobPart[]> {
  const { result, photos } = model.run!;
  const cores = navigator.hardwareConcurrency || 1;
  const machine = { system: navigator.platform || "browser", processor: "WebAssembly", cores };
  const about = { photosName: texts.title, photos, version, machine };
  return [await writeRun(await kitOf(model, catalog), result, about)];
}

export async function deltaFile(model: ModelRecord, catalog: Catalog): Promise<BlobPart[]> {
  return [await writeDelta(await kitOf(model, catalog), model)];
}

export async function modelFile(model: ModelRecord, catalog: Catalog): Promise<BlobPart[]> {
  return [writeModel(await kitOf(model, catalog), model)];
}

/**
 * Open a run, or a kit as it is.
 *
 * @throws UserError if the file is neither, or damaged.
 */
export async function openModel(file: File, catalog: Catalog): Promise<ModelRecord> {
  const { kit, ...trained } = await readModel(await bytesOf(file), file.name);
  await catalog.keepOpened(kit, file.name.replace(/\.zip$/i, ""));
  return modelOf(file.name, kit, trained);
}

/**
 * Open a delta of one of the kits that the page has.
 *
 * @throws UserError if none of them is the delta's, or the file is damaged.
 */
export async function openDelta(file: File, catalog: Catalog): Promise<ModelRecord> {
  const kits = (own: string) => kitsOf(catalog, own);
  const { kit, ...trained } = await readDelta(await bytesOf(file), kits, file.name);
  await catalog.keep(kit.hash);
  return modelOf(file.name, kit, trained);
}

/** The kits that the page has, that of a hash first: one is fetched once it is asked for. */
async function* kitsOf(catalog: Catalog, first: string): AsyncGenerator<Kit> {
  const hashes = catalog.offers.map(({ hash }) => hash);
  hashes.sort((a, b) => Number(b === first) - Number(a === first));
  for (const hash of hashes) yield readKit(await catalog.zip(hash));
}

function modelOf(name: string, kit: Kit, trained: Trained): ModelRecord {
  const { classes, parameters, known, step, score } = trained;
  return {
    name,
    kitHash: kit.hash,
    task: kit.manifest.task.name,
    classes,
    parameters,
    known,
    step,
    score,
    run: null,
  };
}

async function kitOf({ kitHash }: ModelRecord, catalog: Catalog): Promise<Kit> {
  return readKit(await catalog.zip(kitHash));
}
