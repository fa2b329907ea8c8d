"""OpenVINO computes every graph, on processors of Intel and ARM."""

import io
from pathlib import Path

import numpy as np
import pytest

from pocketune import LastLayer, adapt, compile
from pocketune.compiler.quantize.error import relative_error
from pocketune.deployment import export_reduced
from pocketune.device import export
from pocketune.device.engine.session import open_session

from ..device.runs import write_photos
from ..networks.small import small_mobilenet
from .cases import CLASSES, NAMES, SIZE, case

openvino = pytest.importorskip("openvino", reason="install the extra `portability`")


@pytest.mark.parametrize("name", NAMES)
def test_every_graph(name: str) -> None:
    made, core = case(name), openvino.Core()
    for graph, model in made.models.items():
        read = core.read_model(io.BytesIO(model.SerializeToString()))
        read.reshape({key: array.shape for key, array in made.feeds[graph].items()})
        compiled = core.compile_model(read, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        values = compiled(made.feeds[graph])
        made.check(graph, {name: values[name] for name in made.expected[graph]})


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A classifier as each precision of `export`."""
    folder = tmp_path_factory.mktemp("exports")
    network = adapt(small_mobilenet(classes=CLASSES), LastLayer())
    kit = compile(network, folder / "kit", batch=2, size=SIZE).path
    photos = write_photos(folder / "photos", ("cat", "dog", "owl"), each=15)
    files = {"float32": export(kit, folder / "float32.onnx")}
    for precision in ("fp16", "int8"):
        file = folder / f"{precision}.onnx"
        files[precision] = export_reduced(kit, file, precision=precision, photos=photos).path
    return files


@pytest.mark.parametrize(
    ("precision", "error"), [("float32", 1e-5), ("fp16", 5e-3), ("int8", 0.05)]
)
def test_an_export(files: dict[str, Path], precision: str, error: float) -> None:
    """The logits of ONNX Runtime, up to the order of sums and to ties of the rounding."""
    images = np.random.default_rng(3).integers(0, 256, (4, SIZE, SIZE, 3), dtype=np.uint8)
    session = open_session(files[precision], as_written=False, integers=True)
    expected = session.run(["logits"], {"images": images})[0]
    core = openvino.Core()
    read = core.read_model(files[precision])
    read.reshape({"images": images.shape})
    compiled = core.compile_model(read, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    assert relative_error(compiled({"images": images})["logits"], expected) < error
