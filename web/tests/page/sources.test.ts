import { strToU8, zipSync } from "fflate";
import { describe, expect, it } from "vitest";
import { sorted } from "../../src/page/collect/sources";

const content = strToU8("x");

function archive(...paths: string[]) {
  const files = Object.fromEntries(paths.map((path) => [path, content]));
  const file = new File([zipSync(files)], "a.zip");
  return [{ path: file.name, open: () => Promise.resolve(file) }];
}

function loose(...paths: string[]) {
  return paths.map((path) => ({ path, open: () => Promise.resolve(new Blob([content])) }));
}

/** What was given, in words. */
async function found(sources: ReturnType<typeof loose>) {
  const { photos, ours, kits, runs, tensors } = await sorted(sources);
  const counts = [kits.length, runs.length, tensors.length];
  return { photos: photos.map(({ path }) => path), ours, counts };
}

const KIT = ["manifest.json", "step.onnx", "predict.onnx"];
const below = (folder: string, paths: string[]) => paths.map((path) => `${folder}/${path}`);

it("a folder of too many files is refused", async () => {
  const [file] = loose("1.png");
  const files = Array.from({ length: 200_001 }, () => file!);
  await expect(sorted(files)).rejects.toThrow("These are more than 200,000 files");
});

describe("an archive", () => {
  it.each([
    ["a kit", KIT, [1, 0, 0]],
    ["a kit in a folder", below("last", KIT), [1, 0, 0]],
    ["a kit whose paths begin with ./", below(".", KIT), [1, 0, 0]],
    ["a run", [...KIT, "best.safetensors", "metrics.jsonl"], [0, 1, 0]],
    ["a run that was stopped", [...KIT, "last.safetensors"], [0, 1, 0]],
    ["a run in a folder", below("run", [...KIT, "best.safetensors"]), [0, 1, 0]],
  ])("may be %s", async (_, paths, counts) => {
    expect(await found(archive(...paths))).toEqual({ photos: [], ours: [], counts });
  });

  it("of photos may have a file that is called as one of a kit", async () => {
    const paths = ["cats/1.png", "dogs/1.png", "manifest.json"];
    const expected = { photos: paths, ours: [], counts: [0, 0, 0] };
    expect(await found(archive(...paths))).toEqual(expected);
  });

  it("of photos may have a run or plan, which is left out", async () => {
    const run = below("run", [...KIT, "best.safetensors", "sub/1.png"]);
    const given = archive("cats/1.png", "dogs/1.png", ...run, "old/plan.json");
    const expected = { photos: ["cats/1.png", "dogs/1.png"], ours: ["run", "old"] };
    expect(await found(given)).toEqual({ ...expected, counts: [0, 0, 0] });
  });
});

it("a folder of photos may have a run, whose values are no delta", async () => {
  const run = below("pets/run", [...KIT, "best.safetensors"]);
  const given = loose("pets/cats/1.png", "pets/.DS_Store", ...run, "delta.safetensors");
  const expected = { photos: ["pets/cats/1.png"], ours: ["pets/run"], counts: [0, 0, 1] };
  expect(await found(given)).toEqual(expected);
});
