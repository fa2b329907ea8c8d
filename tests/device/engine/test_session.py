"""The graph that is opened, processors that clip sums of products, and cores."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from pocketune.device.engine import session
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.errors import OutOfMemory
from pocketune.kit.kit import Kit
from pocketune.kit.manifest import KitError
from pocketune.kit.names import BLOCKED_STEP
from pocketune.kit.writer import write_kit

from ..tiny_kit import TinyKit


@pytest.mark.parametrize(
    ("machine", "flags", "saturates"),
    [
        ("x86_64", "flags : sse4_2 avx2", True),
        ("AMD64", None, True),
        ("x86_64", "flags : avx2 avx512_vnni", False),
        ("x86_64", "flags : avx2 avx_vnni", False),
        ("aarch64", "Features : fp asimd", False),
        ("arm64", None, False),
    ],
)
def test_products_saturate(
    machine: str,
    flags: str | None,
    saturates: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    if flags is not None:
        cpuinfo.write_text(flags)
    monkeypatch.setattr(session.platform, "machine", lambda: machine)
    monkeypatch.setattr(session, "_CPUINFO", cpuinfo)
    assert session.products_saturate.__wrapped__() is saturates


def with_blocked_step(tmp_path: Path, blocked: bytes) -> Kit:
    tiny = TinyKit()
    return write_kit(tmp_path / "kit", tiny.manifest(), {**tiny.files(), BLOCKED_STEP: blocked})


def loss(kit: Kit) -> float:
    images, labels = np.zeros((4, 8, 8, 3), np.uint8), np.zeros(4, np.int64)
    return OnnxEngine(kit, kit.state()).gradients(images, labels, np.random.default_rng(0)).loss


def test_graphs_of_a_kit_share_one_arena_for_any_number_of_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit, arenas = TinyKit().write(tmp_path / "kit"), list[object]()
    monkeypatch.setattr(session, "_arena_bytes", -1)
    monkeypatch.setattr(session.ort, "create_and_register_allocator", lambda *_: arenas.append(1))
    images = np.zeros((4, 8, 8, 3), np.uint8)
    engine = OnnxEngine(kit, TinyKit(classes=tuple(map(str, range(40)))).state())
    engine.prepare(images)  # the graph of the features does not know of the classes
    engine.gradients(images, np.zeros(4, np.int64), np.random.default_rng(0))
    engine.predict(images)
    assert len(arenas) == 1
    session.open_session(kit.path / "predict.onnx", as_written=True, arena=1 << 40)
    assert len(arenas) == 2


def test_the_step_in_blocks_is_preferred(tmp_path: Path) -> None:
    """Its loss has the other sign here, so that the two can be told apart."""
    blocked = onnx.load_from_string(TinyKit().files()["step.onnx"])
    (node,) = (n for n in blocked.graph.node if n.output[0] == "loss")
    assert node.op_type == "Neg"
    node.op_type = "Identity"
    plain = loss(TinyKit().write(tmp_path / "plain"))
    assert loss(with_blocked_step(tmp_path, blocked.SerializeToString())) == -plain


def test_a_step_in_blocks_that_does_not_open_is_passed_over(tmp_path: Path) -> None:
    """As on processors for which the runtime has no kernels for blocks."""
    blocked = onnx.load_from_string(TinyKit().files()["step.onnx"])
    blocked.graph.node[0].op_type = "ReorderInput"
    blocked.graph.node[0].domain = "com.microsoft.nchwc"
    blocked.opset_import.add(domain="com.microsoft.nchwc", version=99)
    plain = loss(TinyKit().write(tmp_path / "plain"))
    assert loss(with_blocked_step(tmp_path, blocked.SerializeToString())) == plain


@pytest.mark.parametrize("most", [0, 1 << 30])
def test_large_constants_of_a_step_are_not_packed(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: dict[str, bool] = {}
    real = session.open_session

    def watch(model: Path, *, packed: bool = True, **options: bool) -> object:
        opened[model.name] = packed
        return real(model, packed=packed, **options)

    kit = TinyKit().write(tmp_path / "kit")
    expected = loss(kit)
    monkeypatch.setattr("pocketune.kit.manifest.PACKED_WEIGHTS", most)
    monkeypatch.setattr(session, "open_session", watch)
    assert loss(kit) == expected
    assert opened["step.onnx"] is (kit.manifest.graphs["step"].weights <= most)
    assert opened["features.onnx"]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("std::bad_alloc", "the system refused memory (std::bad_alloc); allow this process more"),
        ("Failed to allocate memory for requested buffer", "the system refused memory (Failed"),
        ("Protobuf parsing failed", "it is damaged, or made for a newer runtime (Protobuf"),
    ],
)
def test_a_graph_that_cannot_be_opened_says_why(
    said: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError(said)

    kit = Kit.open(TinyKit().write(tmp_path / "kit").path)
    monkeypatch.setattr(session, "_open", refuse)
    kind = OutOfMemory if "memory" in reason else KitError
    with pytest.raises(kind, match=re.escape(f"cannot be opened: {reason}")):
        session.Graph(kit, "step.onnx", bound={}, inputs=[], outputs=[])


PROGRAM = """
import sys
import onnxruntime
from onnx import TensorProto, helper

if sys.argv[1] == "shared":
    onnxruntime.set_global_thread_pool_sizes(1, 1)

from pocketune.device.engine import session

values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", values[:1], values[1:])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
data = model.SerializeToString()
session.open_session(data, as_written=True)
options = onnxruntime.SessionOptions()
options.use_per_session_threads = sys.argv[1] != "shared"
onnxruntime.InferenceSession(data, options)
"""


@pytest.mark.parametrize("threads", ["of its own", "shared"])
def test_a_program_opens_sessions_as_before(threads: str) -> None:
    """The runtime has one pool for all sessions of a process, or one for each."""
    command = [sys.executable, "-c", PROGRAM, threads]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not done.stdout + done.stderr


def test_a_limit_of_the_arena_holds_after_sessions_without_one() -> None:
    shape = numpy_helper.from_array(np.array([20_000_000]), "shape")
    nodes = [
        onnx.helper.make_node("Expand", ["x", "shape"], ["large"]),
        onnx.helper.make_node("ReduceSum", ["large"], ["sum"], keepdims=0),
    ]
    inputs, outputs = (
        [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims)]
        for name, dims in (("x", [1]), ("sum", []))
    )
    graph = onnx.helper.make_graph(nodes, "expanding", inputs, outputs, [shape])
    opset = onnx.helper.make_opsetid("", 19)
    model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=9).SerializeToString()
    feeds = {"x": np.ones(1, np.float32)}
    for _ in range(2):
        free = session.open_session(model, as_written=True)
        limited = session.open_session(model, as_written=True, arena=50_000_000)
        assert free.run(None, feeds) == [20_000_000]
        with pytest.raises(Exception, match="Available memory of"):
            limited.run(None, feeds)
