// Train a kit (docs/kit.md) on photos with ONNX Runtime Web. Nothing leaves the page.

import * as ort from "./node_modules/onnxruntime-web/dist/ort.webgpu.bundle.min.mjs";

const WIDTHS = { F32: Float32Array }; // all that parameters.safetensors holds

/** The tensors of a safetensors file by name: a length in 8 bytes, a header in JSON, the values. */
function readTensors(bytes) {
  const length = Number(new DataView(bytes).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 8, length)));
  delete header.__metadata__;
  return Object.fromEntries(
    Object.entries(header).map(([name, { dtype, shape, data_offsets: [start, end] }]) => {
      const values = new WIDTHS[dtype](bytes.slice(8 + length + start, 8 + length + end));
      return [name, { shape, values }];
    }),
  );
}

/** The manifest, the graphs and the values of a kit that lies unpacked at an address. */
export async function openKit(address, executionProviders = ["wasm"]) {
  const read = async (name) => {
    const answer = await fetch(address + name);
    if (!answer.ok) throw new Error(`${name} of the kit cannot be read: ${answer.status}`);
    return answer.arrayBuffer();
  };
  const manifest = JSON.parse(new TextDecoder().decode(await read("manifest.json")));
  if (manifest.schema !== 5 || manifest.task.name !== "classification")
    throw new Error("this example trains kits of schema 5 that classify");
  const open = async (name) => ort.InferenceSession.create(await read(name), { executionProviders });
  const [step, predict] = [await open("step.onnx"), await open("predict.onnx")];
  const features = manifest.features && (await open("features.onnx"));
  return { manifest, step, predict, features, values: readTensors(await read("parameters.safetensors")) };
}

/** The pixels of a photo's center square, uint8 (1, size, size, 3). */
async function readPixels(file, size) {
  const image = await createImageBitmap(file);
  const side = Math.min(image.width, image.height);
  const [left, top] = [(image.width - side) / 2, (image.height - side) / 2];
  const context = new OffscreenCanvas(size, size).getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(image, left, top, side, side, 0, 0, size, size);
  image.close();
  const { data } = context.getImageData(0, 0, size, size);
  return new ort.Tensor("uint8", data.filter((_, i) => i % 4 < 3), [1, size, size, 3]);
}

/** Tensors (1, ...) as one (N, ...). */
function stack(tensors) {
  const [{ type, dims, data }] = tensors;
  const values = new data.constructor(tensors.length * data.length);
  tensors.forEach((tensor, i) => values.set(tensor.data, i * data.length));
  return new ort.Tensor(type, values, [tensors.length, ...dims.slice(1)]);
}

/** Those of the tensors that a graph takes. */
const only = (session, feeds) =>
  Object.fromEntries(session.inputNames.map((name) => [name, feeds[name]]));

const shuffled = (list) =>
  list.map((item) => [Math.random(), item]).sort(([a], [b]) => a - b).map(([, item]) => item);

/** A dropout mask: 0 or 1 / keep. */
function drawMask({ shape, keep }) {
  const values = new Float32Array(shape.reduce((a, b) => a * b, 1));
  return new ort.Tensor("float32", values.map(() => (Math.random() < keep ? 1 / keep : 0)), shape);
}

/** Train on photos, `{ file, label }`; returns the losses and the accuracy on the same photos. */
export async function train(kit, photos, { epochs = 5, rate = 0.003, report = () => {} } = {}) {
  const { manifest, values } = kit;
  const classes = [...new Set(photos.map(({ label }) => label))].sort();
  const size = manifest.micro_batch; // what the graph takes; each is a step of its own here
  if (photos.length < size || classes.length < 2)
    throw new Error(`choose two classes or more, with ${size} photos in all`);
  for (const name of manifest.task.head) { // starts from zeros, for these classes
    const shape = [classes.length, ...values[name].shape.slice(1)];
    values[name] = { shape, values: new Float32Array(shape.reduce((a, b) => a * b)) };
  }
  const start = kit.features ? "features" : "images"; // what the trained part reads
  const inputs = [];
  for (const { file } of photos) {
    const images = await readPixels(file, manifest.size);
    inputs.push(kit.features ? (await kit.features.run({ images })).features : images);
  }
  const labels = photos.map(({ label }) => BigInt(classes.indexOf(label)));
  const state = () => Object.fromEntries(Object.entries(values).map(
    ([name, { shape, values: array }]) => [name, new ort.Tensor("float32", array, shape)]));
  const moments = Object.fromEntries(manifest.parameters.map(({ name }) => {
    const zeros = () => new Float32Array(values[name].values.length);
    return [name, [zeros(), zeros()]];
  }));
  const losses = [];
  for (let epoch = 0; epoch < epochs; epoch++) {
    const order = shuffled([...photos.keys()]);
    for (let at = 0; at + size <= order.length; at += size) {
      const batch = order.slice(at, at + size);
      const masks = manifest.masks.map((mask) => [mask.name, drawMask(mask)]);
      const found = await kit.step.run(only(kit.step, {
        ...state(), ...Object.fromEntries(masks),
        [start]: stack(batch.map((i) => inputs[i])),
        labels: new ort.Tensor("int64", BigInt64Array.from(batch, (i) => labels[i]), [batch.length]),
      }));
      losses.push(found.loss.data[0]);
      for (const { name } of manifest.statistics) values[name].values.set(found[`new.${name}`].data);
      for (const { name } of manifest.parameters)
        updateAdam(values[name].values, found[`grad.${name}`].data, moments[name], losses.length, rate);
    }
    report(`epoch ${epoch + 1} of ${epochs}: loss ${losses.at(-1).toFixed(3)}`);
  }
  let correct = 0;
  for (const [i, input] of inputs.entries()) {
    const { logits } = await kit.predict.run(only(kit.predict, { ...state(), [start]: input }));
    const guess = logits.data.indexOf(Math.max(...logits.data));
    correct += BigInt(guess) === labels[i];
  }
  return { classes, losses, accuracy: correct / photos.length };
}

/** A step of Adam, in place (Kingma and Ba, 2015, arXiv 1412.6980, algorithm 1). */
function updateAdam(parameter, gradient, [first, second], step, rate) {
  const [decay, squaredDecay] = [0.9, 0.999];
  for (let i = 0; i < parameter.length; i++) {
    first[i] = decay * first[i] + (1 - decay) * gradient[i];
    second[i] = squaredDecay * second[i] + (1 - squaredDecay) * gradient[i] ** 2;
    const mean = first[i] / (1 - decay ** step);
    parameter[i] -= (rate * mean) / (Math.sqrt(second[i] / (1 - squaredDecay ** step)) + 1e-8);
  }
}
