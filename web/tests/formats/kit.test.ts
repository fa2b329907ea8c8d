import { describe, expect, it } from "vitest";
import { UserError, type Manifest } from "../../src/contract";
import { sha256 } from "../../src/formats/bytes";
import { checkGraph } from "../../src/formats/graphs";
import { readKit } from "../../src/formats/kit";
import { readManifest } from "../../src/formats/manifest";
import { readOutline } from "../../src/formats/outline";
import {
  bytesField,
  numberField,
  readFields,
  textField,
  writeFields,
} from "../../src/formats/wire";
import { bytes, changed, facts, fixture, text } from "./fixtures";

const KIT = fixture("kit.zip");

async function message(zip: Uint8Array): Promise<string> {
  const error: unknown = await readKit(zip, "k.zip").then(
    () => null,
    (caught: unknown) => caught,
  );
  expect(error).toBeInstanceOf(UserError);
  const found = (error as Error).message;
  expect(found).not.toContain("\n");
  return found;
}

/** The kit with another manifest. */
const withManifest = (change: (fields: Record<string, never>) => object) =>
  changed(KIT, "manifest.json", (old) =>
    bytes(JSON.stringify(change(JSON.parse(text(old)) as Record<string, never>))),
  );

/** The kit with another file, of which the manifest knows, as if somebody tampered with both. */
async function withFile(name: string, change: (old: Uint8Array) => Uint8Array) {
  let hash = "";
  const zip = changed(KIT, name, (old) => {
    const content = change(old);
    hash = name + ":" + String(content.length);
    return content;
  });
  expect(hash).not.toBe("");
  const kit = new Map<string, Uint8Array>();
  changed(zip, name, (content) => {
    kit.set(name, content);
    return content;
  });
  const sum = await sha256(kit.get(name)!);
  return changed(zip, "manifest.json", (old) => {
    const fields = JSON.parse(text(old)) as Manifest;
    return bytes(JSON.stringify({ ...fields, files: { ...fields.files, [name]: sum } }));
  });
}

describe("a kit", () => {
  it("opens with all that it holds", async () => {
    const kit = await readKit(KIT);
    expect(kit.hash).toBe(facts().hash);
    expect(kit.manifest.task.classes).toEqual(["cat", "dog", "owl"]);
    expect(kit.manifest.features).toEqual([6]);
    expect(kit.manifest.masks).toEqual([{ name: "drop.mask", shape: [4, 6], keep: 0.75 }]);
    expect([...kit.parameters.keys()]).toEqual([
      "fc.weight",
      "fc.bias",
      "scale",
      "norm.running_mean",
    ]);
    expect(kit.parameters.get("scale")).toEqual({ shape: [], data: Float32Array.of(1.5) });
    expect(kit.graphs.features!.length).toBeGreaterThan(100);
    expect([...kit.files.keys()].sort()).toEqual([
      "features.onnx",
      "manifest.json",
      "parameters.safetensors",
      "predict.onnx",
      "step.onnx",
    ]);
  });

  it("opens from a run, too", async () => {
    expect((await readKit(fixture("run.zip"))).hash).toBe(facts().hash);
  });

  it("that is none is refused", async () => {
    expect(await message(bytes("no zip"))).toMatch(/^k.zip is not a .zip/);
    expect(await message(changed(KIT, "manifest.json", undefined))).toBe(
      "k.zip is not a kit: it holds no manifest.json",
    );
    for (const name of ["features.onnx", "step.onnx", "predict.onnx", "parameters.safetensors"]) {
      expect(await message(changed(KIT, name, undefined))).toBe(
        `${name} of the kit k.zip is missing; copy the kit again`,
      );
    }
  });

  it("with a changed file is refused by its hash", async () => {
    const flipped = changed(KIT, "predict.onnx", (old) =>
      old.map((b, i) => (i === 50 ? b ^ 1 : b)),
    );
    expect(await message(flipped)).toBe(
      "predict.onnx of the kit k.zip is not the file that its manifest describes (wrong SHA-256): " +
        "it is damaged or was changed; copy the kit again",
    );
  });

  it("with a file far larger than its manifest says is not unpacked", async () => {
    const noise = new Uint8Array(3 << 20);
    for (let at = 0; at < noise.length; at += 1 << 16) {
      crypto.getRandomValues(noise.subarray(at, at + (1 << 16)));
    }
    expect(await message(changed(KIT, "step.onnx", () => noise))).toMatch(
      /step.onnx of the kit k.zip has 3,145,728 bytes, more than its manifest says/,
    );
  });

  it.each([
    [{ schema: 5 }, /was written by an older pocketune \(its schema is 5, this version reads 6\)/],
    [{ micro_batch: 3 }, /a batch of 4 images, no multiple of micro_batch=3/],
    [{ micro_batch: 2 }, /statistics of a batch, and micro_batch=2 is only a part of one/],
    [{ schema: 9 }, /needs a newer studio \(its schema is 9/],
    [
      { batch: 0 },
      /'batch' must be a whole number of at least 1, not 0; build the kit again or copy/,
    ],
    [{ batch: 1.5 }, /'batch' must be a whole number of at least 1, not 1.5/],
    [{ batch: null }, /'batch' must be a whole number of at least 1, not null/],
    [{ mean: [0, 1] }, /'mean' must be a list of 3 values, not a list/],
    [{ std: [1, 0, 1] }, /has a standard deviation of 0, which must be above 0/],
    [{ extra: 1 }, /manifest.json has the unknown field 'extra'/],
    [{ network: undefined }, /manifest.json lacks the field 'network'/],
    [{ files: { "evil.sh": "00" } }, /lists 'evil.sh' under 'files'/],
    [{ graphs: {} }, /lists the graphs none where the kit has features, predict, step/],
    [{ statistics: [{ name: "scale", shape: [] }] }, /names a tensor twice/],
    [
      { features: [65536, 65536] },
      /gives a batch of features the shape .*, which is more than 1,073/,
    ],
    [
      { parameters: [{ name: "x", shape: [1], group: "odd" }] },
      /'parameters\[0\].group' must be one of/,
    ],
    [
      { task: { name: "segmentation" } },
      /is of the task segmentation, .*: use the command line for it$/,
    ],
    [
      { task: { name: "magic" } },
      /'task.name' must be one of attributes, classification, segmenta/,
    ],
    [
      { task: { name: "classification", classes: ["a", "a"], head: [], label_smoothing: 0 } },
      /classes \[a, a\] must be one or more different names/,
    ],
    [
      { task: { name: "classification", classes: ["a\u202eb"], head: [], label_smoothing: 0 } },
      /has a character that cannot be shown; rename it/,
    ],
  ])("with the manifest %j is refused", async (change, expected) => {
    expect(await message(withManifest((fields) => ({ ...fields, ...change })))).toMatch(expected);
  });

  it("with a manifest that is no JSON is refused", async () => {
    const broken = changed(KIT, "manifest.json", () => bytes("{"));
    expect(await message(broken)).toMatch(/^k.zip\/manifest.json is not valid JSON/);
  });

  it("with initial values that are not the manifest's is refused", async () => {
    const nan = (old: Uint8Array) => {
      const copy = old.slice();
      new DataView(copy.buffer).setFloat32(copy.length - 4, NaN, true);
      return copy;
    };
    expect(await message(await withFile("parameters.safetensors", nan))).toMatch(
      /has a value that is not finite/,
    );
    const cut = (old: Uint8Array) => old.slice(0, -4);
    expect(await message(await withFile("parameters.safetensors", cut))).toMatch(/is damaged/);
  });
});

describe("a graph", () => {
  const manifest = async () => (await readKit(KIT)).manifest;

  /** A graph with one more field in its model or in its graph message. */
  const extended = (
    data: Uint8Array,
    where: "model" | "graph",
    field: ReturnType<typeof textField>,
  ) => {
    const fields = [...readFields(data)].map((each) =>
      each.number === 7 && where === "graph"
        ? bytesField(7, writeFields([...readFields(each.value as Uint8Array), field]))
        : each,
    );
    return writeFields(where === "model" ? [...fields, field] : fields);
  };
  const node = (operator: string, domain = "") =>
    bytesField(1, writeFields([textField(4, operator), ...(domain ? [textField(7, domain)] : [])]));

  it("of Python is read to the last part", async () => {
    const { graphs } = await readKit(KIT);
    const outline = readOutline(graphs.step);
    expect(outline.opsets).toEqual(new Map([["", 18]]));
    expect(outline.nodes.length).toBe(28);
    expect(outline.inputs.map(({ name }) => name)).toContain("drop.mask");
    expect(outline.inputs.find(({ name }) => name === "fc.weight")!.shape).toEqual([null, 6]);
    expect(writeFields(readFields(graphs.step))).toEqual(graphs.step);
  });

  it("with anything that a kit may not hold is refused", async () => {
    const { graphs, manifest } = await readKit(KIT);
    const refused = (data: Uint8Array) => () => {
      checkGraph("predict.onnx", data, manifest, "predict.onnx of the kit k");
    };
    const { predict } = graphs;
    checkGraph("predict.onnx", predict, manifest, "here");
    for (const [field, where, expected] of [
      [
        node("Loop"),
        "graph",
        "predict.onnx of the kit k is not a graph that a kit may hold: it has the operator Loop",
      ],
      [node("Evil", "my.domain"), "graph", "it has the operator my.domain.Evil"],
      [node("FusedConv", "com.microsoft"), "graph", "it has the operator com.microsoft.FusedConv"],
      [bytesField(15, new Uint8Array()), "graph", "it has the unexpected field 15"], // sparse tensors
      [bytesField(25, new Uint8Array()), "model", "it has the unexpected field 25"], // functions
      [numberField(1, 9), "model", "it has more than one ir_version"],
      [
        bytesField(8, writeFields([textField(1, ""), numberField(2, 12)])),
        "model",
        "it asks for version 12 of the operators, not 13 to 23",
      ],
      [
        bytesField(8, writeFields([textField(1, "ai.onnx.ml"), numberField(2, 1)])),
        "model",
        "it asks for operators of 'ai.onnx.ml'",
      ],
      [
        bytesField(11, writeFields([textField(1, "more")])),
        "graph",
        "its input more is not in the manifest",
      ],
      [bytesField(12, writeFields([textField(1, "logits")])), "graph", "it names an output twice"],
      [
        bytesField(
          5,
          writeFields([numberField(1, 4), numberField(2, 1), bytesField(9, new Uint8Array(8))]),
        ),
        "graph",
        "a constant of shape (4) has 2 values",
      ],
      [
        bytesField(5, writeFields([numberField(2, 8)])),
        "graph",
        "a constant has elements of type 8",
      ],
      [
        bytesField(5, writeFields([numberField(2, 1), numberField(14, 1)])),
        "graph",
        "a constant has its values in another file",
      ],
    ] as const) {
      expect(refused(extended(predict, where, field))).toThrow(expected);
    }
    // A subgraph is an attribute's field 6.
    const attribute = bytesField(5, writeFields([textField(1, "body"), bytesField(6, predict)]));
    const nested = bytesField(1, writeFields([textField(4, "Add"), attribute]));
    expect(refused(extended(predict, "graph", nested))).toThrow("it has the unexpected field 6");
    expect(refused(graphs.step)).toThrow("its input labels is not in the manifest");
    expect(refused(predict.subarray(0, -3))).toThrow("it ends in the middle of a field");
  });

  it("with any damaged byte is refused or read, never worse", async () => {
    const { graphs } = await readKit(KIT);
    const own = await manifest();
    for (let place = 0; place < graphs.step.length; place += 5) {
      const damaged = graphs.step.slice();
      damaged[place]! ^= 0xff;
      try {
        checkGraph("step.onnx", damaged, own, "step.onnx");
      } catch (error) {
        expect(error).toBeInstanceOf(UserError);
      }
    }
  });
});

describe("manifests", () => {
  it("are plain objects", async () => {
    const { files } = await readKit(KIT);
    const own = readManifest(files.get("manifest.json")!);
    expect(own).toEqual(JSON.parse(text(files.get("manifest.json")!)));
  });
});
