"""When the ONNX engine opens its graphs, and values that are swapped while they are open."""

import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pocketune.device.engine import onnx as onnx_engine
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.kit.kit import Kit
from pocketune.kit.manifest import KitError

from ..tiny_kit import WIDTH, TinyKit
from .expected import batch, logits, make


def test_graphs_are_opened_when_they_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    original = onnx_engine.Graph.__init__

    def record(self: onnx_engine.Graph, kit: Kit, name: str, **rest: object) -> None:
        opened.append(name)
        original(self, kit, name, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr(onnx_engine.Graph, "__init__", record)
    tiny = TinyKit()
    engine = make(tiny, tmp_path)
    assert opened == []
    for _ in range(2):
        engine.gradients(*batch(tiny), np.random.default_rng(0))
    assert opened == ["step.onnx", "features.onnx"]
    for _ in range(2):
        engine.predict(batch(tiny)[0])
    assert opened == ["step.onnx", "features.onnx", "predict.onnx"]


@pytest.mark.parametrize(("live", "at_once"), [(64 << 20, 1), (2 << 20, 2), (1 << 10, 4)])
def test_the_frozen_part_takes_large_images_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, live: int, at_once: int
) -> None:
    tiny = TinyKit()
    seen: list[int] = []
    original = onnx_engine.Graph.run

    def record(
        self: onnx_engine.Graph, feeds: dict[str, np.ndarray], **rest: Any
    ) -> dict[str, np.ndarray]:
        if set(feeds) == {"images"}:
            seen.append(len(feeds["images"]))
        return original(self, feeds, **rest)

    monkeypatch.setattr(onnx_engine.Graph, "run", record)
    kit = tiny.write(tmp_path / "kit")
    spec = kit.manifest.graphs["features"]
    kit.manifest.graphs["features"] = replace(spec, memory=live)
    images, _ = batch(tiny)
    result = OnnxEngine(kit, kit.state()).predict(images)
    assert seen == [at_once] * (4 // at_once)
    np.testing.assert_allclose(result, logits(tiny, tiny.state(), images), atol=1e-4)


def test_one_of_step_and_predict_is_open_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = TinyKit(frozen_part=False, statistic=False, masks=False)
    engine, opened = make(tiny, tmp_path), []
    graph = onnx_engine.Graph

    def count(kit: Kit, name: str, **others: object) -> object:
        opened.append((name, weakref.ref(made := graph(kit, name, **others))))  # type: ignore[arg-type]
        return made

    monkeypatch.setattr(onnx_engine, "Graph", count)
    images, labels = batch(tiny)
    for _ in range(2):
        engine.gradients(images, labels, np.random.default_rng(0))
        engine.gradients(images, labels, np.random.default_rng(0))
        engine.predict(images)
    assert [name for name, _ in opened] == ["step.onnx", "predict.onnx"] * 2
    assert [alive() is not None for _, alive in opened] == [False, False, False, True]


@pytest.mark.parametrize("classes", [("cat", "dog", "owl"), ("a", "b")])
def test_swapped_values_compute_as_an_engine_of_their_own(
    tmp_path: Path, classes: tuple[str, ...]
) -> None:
    engine, other = make(TinyKit(), tmp_path), TinyKit(classes=classes)
    images, _ = batch(TinyKit())
    before = engine.predict(images)
    engine.swap(other.state())
    expected = OnnxEngine(TinyKit().write(tmp_path / "again"), other.state())
    np.testing.assert_array_equal(engine.predict(images), expected.predict(images))
    np.testing.assert_array_equal(engine.complete(engine.prepare(images)), engine.predict(images))
    assert engine.parameters["fc.weight"].shape == (len(classes), WIDTH)
    engine.swap(TinyKit().state())
    np.testing.assert_array_equal(engine.predict(images), before)


def test_swapping_opens_no_graph_again(tmp_path: Path) -> None:
    engine = make(TinyKit(), tmp_path)
    images, _ = batch(TinyKit())
    engine.predict(images)
    assert engine._open is not None
    opened = engine._open[1]
    engine.swap(TinyKit(classes=("a", "b")).state())
    assert engine.predict(images).shape == (4, 2)
    assert engine._open[1] is opened


def test_values_that_do_not_fit_are_not_swapped_in(tmp_path: Path) -> None:
    engine = make(TinyKit(), tmp_path)
    images, _ = batch(TinyKit())
    before = engine.predict(images)
    with pytest.raises(KitError, match="the state lacks the tensor scale"):
        engine.swap({name: v for name, v in TinyKit().state().items() if name != "scale"})
    np.testing.assert_array_equal(engine.predict(images), before)
