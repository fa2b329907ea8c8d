"""Adapters in ONNX Runtime's own format."""

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from pocketune.device.engine import session as runtime
from pocketune.device.use import adapter
from pocketune.device.use.adapter import export_adapter
from pocketune.device.use.model import Model
from pocketune.errors import PocketuneError
from pocketune.kit.bundled import bundled_kit
from pocketune.kit.kit import Kit

from ..runs import State
from ..tiny_kit import TinyKit


def logits(kit: Kit, feeds: State) -> np.ndarray:
    graph = runtime.open_session(kit.source("predict.onnx"), as_written=False)
    taken = {each.name for each in graph.get_inputs()}
    return graph.run(["logits"], {name: v for name, v in feeds.items() if name in taken})[0]


@pytest.mark.parametrize("name", ["last", "blocks"])
def test_adapters_of_any_classes_give_their_outputs_to_the_last_bit_on_one_session(
    tmp_path: Path, name: str
) -> None:
    kit = Kit.open(bundled_kit(name))
    rng = np.random.default_rng(0)
    start = {"features": rng.random((2, *kit.manifest.features), dtype=np.float32)}
    graph = runtime.open_session(kit.source("predict.onnx"), as_written=False)
    for classes in (("a", "b"), ("a", "b", "c")):
        shapes = kit.manifest.shapes(len(classes))
        state = {n: rng.random(shape, dtype=np.float32) for n, shape in shapes.items()}
        file = export_adapter(Model(kit, classes, state), tmp_path / "new" / "a.onnx_adapter")
        expected = logits(kit, {**start, **state})
        np.testing.assert_array_equal(runtime.run_adapted(graph, file, start), expected)
        assert expected.shape == (2, len(classes))


def test_a_scalar_has_no_place_in_the_format(tmp_path: Path) -> None:
    kit = TinyKit().write(tmp_path / "kit")
    with pytest.raises(PocketuneError, match=r"no scalars, and the kit .*kit has one, scale: save"):
        export_adapter(kit.path, tmp_path / "a.onnx_adapter")


@pytest.mark.parametrize(("error", "refused"), [(1e-6, False), (1e-3, True)])
def test_outputs_may_differ_in_their_last_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: float, refused: bool
) -> None:
    run = runtime.run_adapted
    monkeypatch.setattr(adapter.runtime, "run_adapted", lambda *each: run(*each) * (1 + error))
    expected = pytest.raises(PocketuneError) if refused else nullcontext()
    with expected:
        export_adapter("last", tmp_path / "a.onnx_adapter")


def test_an_adapter_that_computes_something_else_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = lambda *_: np.zeros((1, 3), np.float32)  # noqa: E731
    monkeypatch.setattr(adapter.runtime, "run_adapted", wrong)
    with pytest.raises(
        PocketuneError, match=r"last.zip cannot be adapted: this version of ONNX Runtime"
    ):
        export_adapter("last", tmp_path / "a.onnx_adapter")
    assert not list(tmp_path.glob("*a.onnx_adapter*"))


def test_an_adapter_does_not_replace_a_file_of_its_run(tmp_path: Path) -> None:
    kit = TinyKit().write(tmp_path / "run")
    with pytest.raises(PocketuneError, match="choose another file"):
        export_adapter(kit.path, kit.path / "best.safetensors")


def test_only_an_adapter_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").write_bytes(b"a network")
    with pytest.raises(PocketuneError, match="exists and is not an adapter: choose another name"):
        export_adapter("last", tmp_path / "a.onnx")
    for _ in range(2):
        export_adapter("last", tmp_path / "a.onnx_adapter")


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(PocketuneError, match="taken cannot be written"):
        export_adapter("last", tmp_path / "taken")
