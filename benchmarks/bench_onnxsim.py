"""The training step of an ONNX file: a kit against onnxsim's training loop.

    pip install --no-deps --target onnxsim/ onnxsim==0.8.1
    PYTHONPATH=onnxsim python benchmarks/bench_onnxsim.py [--rounds 15] [--size 224] [--batch 8]

MobileNetV2 1.0 is exported to ONNX, with its norms folded, and both train that file with Adam. A
kit is made by `load_onnx`; onnxsim differentiates the graph after `onnxsim.simplify`, with the loss
put behind the logits. For the last layer both steps compute the same, and their losses are
compared. Otherwise the kit has norms again, with the statistics of the batch, and onnxsim has none,
which favours it. Each step runs in a process of its own, which takes turns with the others, one
step after one that is not timed; medians are compared, and the peaks of the processes. That of
onnxsim has its step graph and ONNX Runtime alone, with the state in the runtime's memory as in its
`TrainingLoop`, and without what that loop takes to differentiate the graph.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import numpy as np

from bench_step import CLASSES, METHODS, arguments
from fresh import Worker
from report import table, write

STEPS = ("kit", "onnxsim")
TRAINED_CONVOLUTIONS = {"last": 0, "blocks": 10, "full": None}
"""How many of the last convolutions each method trains; three blocks and the one behind them."""
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
RATE, BETAS = 1e-4, (0.9, 0.999)
Step = Callable[[np.ndarray, np.ndarray], float]


def write_model(path: Path, batch: int, size: int) -> None:
    """Export the network, as users find it."""
    import torch

    import pocketune

    network = pocketune.create_network("mobilenet_v2", weights=None, classes=CLASSES).eval()
    images = torch.zeros(batch, 3, size, size)
    names = {"input_names": ["image"], "output_names": ["logits"]}
    torch.onnx.export(network, images, str(path), dynamo=False, opset_version=17, **names)


def build_kit(model: Path, method: str, out: Path, batch: int, size: int) -> None:
    """A kit of the file."""
    import pocketune
    from pocketune.methods import compose_method
    from pocketune.networks import normalize

    network = pocketune.load_onnx(model, size=size)
    if method != "last":
        images = np.random.default_rng(1).integers(
            0, 256, (2, batch, size, size, 3), dtype=np.uint8
        )
        pocketune.restore_batch_norm(network, [normalize(network, each) for each in images])
    network = pocketune.adapt(network, compose_method(*METHODS[method]))
    pocketune.compile(network, out, batch=batch, size=size)


def build_onnxsim(model: Path, method: str, out: Path) -> None:
    """The step graph of onnxsim, and where its state is, in a folder."""
    import onnx
    import onnxsim
    from onnx import TensorProto, helper

    found, _ = onnxsim.simplify(onnx.load(model))
    graph = found.graph
    for node in [node for node in graph.node if node.op_type == "Constant"]:
        value = onnx.TensorProto()
        value.CopyFrom(node.attribute[0].t)
        value.name = node.output[0]
        graph.initializer.append(value)
        graph.node.remove(node)
    batch = graph.input[0].type.tensor_type.shape.dim[0].dim_value
    graph.node.extend(
        [
            helper.make_node("Softmax", ["logits"], ["likely"], axis=1),
            helper.make_node("Mul", ["likely", "one_hot"], ["of_class"]),
            helper.make_node("ReduceSum", ["of_class", "axis"], ["right"], keepdims=0),
            helper.make_node("Log", ["right"], ["logged"]),
            helper.make_node("ReduceMean", ["logged"], ["averaged"], keepdims=0),
            helper.make_node("Neg", ["averaged"], ["loss"]),
        ]
    )
    graph.initializer.append(helper.make_tensor("axis", TensorProto.INT64, [1], [1]))
    shape = [batch, CLASSES]
    graph.input.append(helper.make_tensor_value_info("one_hot", TensorProto.FLOAT, shape))
    graph.output[0].CopyFrom(helper.make_tensor_value_info("loss", TensorProto.FLOAT, []))
    layers = [node for node in graph.node if node.op_type in ("Conv", "Gemm")]
    count = TRAINED_CONVOLUTIONS[method]
    trained = layers if count is None else layers[-1 - count :]
    names = [name for node in trained for name in node.input[1:]]
    loop = onnxsim.compile_training_loop(found, "loss", names)
    step = loop.step_graph
    out.mkdir()
    onnx.save(step.model, out / "step.onnx")
    np.savez(out / "state.npz", **loop.initial_state)
    (out / "state.json").write_text(json.dumps(dict(step.state)))


def kit_step(kit_path: Path) -> Step:
    """The step of a kit, with its optimizer."""
    from pocketune.device.engine.onnx import OnnxEngine
    from pocketune.device.train.optimizer import Adam
    from pocketune.kit.kit import Kit

    kit = Kit.open(kit_path)
    engine, rng = OnnxEngine(kit, kit.state()), np.random.default_rng(0)
    optimizer = Adam(engine.parameters)

    def step(images: np.ndarray, labels: np.ndarray) -> float:
        gradients = engine.gradients(images, labels, rng)
        optimizer.step(gradients.values, lr=RATE)
        return gradients.loss

    return step


def onnxsim_step(folder: Path) -> Step:
    """What onnxsim's loop does in a step."""
    import onnxruntime as ort

    session = ort.InferenceSession(str(folder / "step.onnx"), providers=["CPUExecutionProvider"])
    outputs = json.loads((folder / "state.json").read_text())
    with np.load(folder / "state.npz") as file:
        state = {name: ort.OrtValue.ortvalue_from_numpy(file[name]) for name in outputs}
    times = 0

    def step(images: np.ndarray, labels: np.ndarray) -> float:
        nonlocal times
        times += 1
        pixels = (images / np.float32(255) - np.float32(MEAN)) / np.float32(DEVIATION)
        feeds = {
            "image": np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)),
            "one_hot": np.eye(CLASSES, dtype=np.float32)[labels],
            "lr": np.array(RATE, np.float32),
            "m_correction": np.array(1 / (1 - BETAS[0] ** times), np.float32),
            "v_correction": np.array(1 / (1 - BETAS[1] ** times), np.float32),
        }
        values = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in feeds.items()}
        *found, loss = session.run_with_ort_values([*outputs.values(), "loss"], {**state, **values})
        state.update(zip(outputs, found, strict=True))
        return float(loss.numpy())

    return step


def work(how: str, path: Path, batch: int, size: int) -> None:
    """Make a timed step for every line on standard input."""
    from pocketune.device.memory.process import process_memory

    step = kit_step(path) if how == "kit" else onnxsim_step(path)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (batch, size, size, 3), dtype=np.uint8)
    labels = rng.integers(0, CLASSES, batch)
    for _ in sys.stdin:
        step(images, labels)
        start = time.perf_counter()
        loss = step(images, labels)
        print((time.perf_counter() - start) * 1e3, loss, process_memory().peak / 1e6, flush=True)


def measure(method: str, scratch: Path, options: argparse.Namespace) -> list[list[object]]:
    """The rows of a method."""
    model, batch, size = scratch / "model.onnx", options.batch, options.size
    paths = {how: scratch / f"{method}-{how}" for how in STEPS}
    build_kit(model, method, paths["kit"], batch, size)
    builder = (sys.executable, __file__, "--onnxsim", model, method, paths["onnxsim"])
    subprocess.run(list(map(str, builder)), check=True)  # the runtime has Pocketune's threads here
    workers = {how: Worker(__file__, how, paths[how], batch, size) for how in STEPS}
    found: dict[str, list[list[float]]] = {how: [] for how in STEPS}
    for _ in range(options.rounds):
        for how, worker in workers.items():
            found[how].append(worker.step())
    for worker in workers.values():
        worker.close()
    if method == "last":
        losses = [[loss for _, loss, _ in found[how]] for how in STEPS]
        np.testing.assert_allclose(*losses, rtol=1e-3)
    times = {how: median(milliseconds for milliseconds, _, _ in found[how]) for how in STEPS}
    return [
        [
            method,
            how,
            f"{times[how]:.0f}",
            f"{times[how] / times['kit']:.1f}",
            f"{found[how][-1][2]:.0f}",
        ]
        for how in STEPS
    ]


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        how, path, batch, size = sys.argv[2:]
        work(how, Path(path), int(batch), int(size))
        return
    if sys.argv[1:2] == ["--onnxsim"]:
        model, method, out = sys.argv[2:]
        build_onnxsim(Path(model), method, Path(out))
        return
    options = arguments(__doc__, rounds=15)
    if find_spec("onnxsim") is None:
        print("skipped: onnxsim is not installed")
        return
    with tempfile.TemporaryDirectory() as folder:
        write_model(Path(folder) / "model.onnx", options.batch, options.size)
        rows = [
            row for method in TRAINED_CONVOLUTIONS for row in measure(method, Path(folder), options)
        ]
    title = (
        f"A step of MobileNetV2 1.0 from its ONNX file, batch {options.batch}, {options.size} px"
    )
    header = ["method", "step", "median ms", "times a kit's", "peak process MB"]
    write("onnxsim", title, table(header, rows))


if __name__ == "__main__":
    main()
