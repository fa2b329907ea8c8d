// Compute the graphs of cases in onnxruntime-web: node steps.mjs ONNXRUNTIME_WEB FOLDER
//
// FOLDER has a folder for each case, with GRAPH.onnx and GRAPH.feeds.safetensors for each graph.
// GRAPH.found.safetensors gets the outputs.

import { readFile, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [runtime, root] = process.argv.slice(2);
const ort = await import(pathToFileURL(runtime));
ort.env.wasm.numThreads = 1;
ort.env.logLevel = "error";

const TYPES = { F32: "float32", I64: "int64", U8: "uint8" };
const ARRAYS = { F32: Float32Array, I64: BigInt64Array, U8: Uint8Array };

/** The tensors of a safetensors file by name: 8 bytes of length, a header in JSON, the values. */
function parse(bytes) {
  const length = Number(new DataView(bytes).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 8, length)));
  return Object.fromEntries(
    Object.entries(header).map(([name, { dtype, shape, data_offsets: [start, end] }]) => {
      const values = new ARRAYS[dtype](bytes.slice(8 + length + start, 8 + length + end));
      return [name, new ort.Tensor(TYPES[dtype], values, shape)];
    }),
  );
}

/** The bytes of a safetensors file with these tensors. */
function serialize(tensors) {
  const header = {};
  const parts = [];
  let end = 0;
  for (const [name, { type, dims, data }] of Object.entries(tensors)) {
    const dtype = Object.keys(TYPES).find((key) => TYPES[key] === type);
    header[name] = { dtype, shape: dims, data_offsets: [end, (end += data.byteLength)] };
    parts.push(Buffer.from(data.buffer, data.byteOffset, data.byteLength));
  }
  const text = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  return Buffer.concat([length, text, ...parts]);
}

const arrayBuffer = (file) => new Uint8Array(file).buffer;

for (const name of await readdir(root)) {
  const folder = join(root, name);
  for (const file of (await readdir(folder)).filter((each) => each.endsWith(".onnx"))) {
    const graph = file.slice(0, -".onnx".length);
    const feeds = await readFile(join(folder, `${graph}.feeds.safetensors`));
    const session = await ort.InferenceSession.create(await readFile(join(folder, file)));
    const found = await session.run(parse(arrayBuffer(feeds)));
    await writeFile(join(folder, `${graph}.found.safetensors`), serialize(found));
    await session.release();
  }
}
