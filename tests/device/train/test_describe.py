"""What a finished run leaves for telling photos of none of its classes."""

import tracemalloc
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from pocketune.arrays import FloatArray
from pocketune.device.engine.base import Gradients
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.train import describe, train
from pocketune.device.train.checkpoint import TrainedNetwork
from pocketune.device.train.progress import PhotosReport, Silent
from pocketune.device.use import known as known_module
from pocketune.device.use.known import Known
from pocketune.device.use.model import Model
from pocketune.kit.kit import Kit, required_files
from pocketune.kit.manifest import ParameterSpec
from pocketune.kit.names import BEST, KNOWN, PARAMETERS
from pocketune.kit.writer import write_kit

from ...kit.hollow import hollow_graph
from ..runs import lines, make_settings, write_photos
from ..softmax_engine import SoftmaxEngine, write_softmax_kit
from ..softmax_engine import write_photos as write_colors
from ..tiny_kit import CLASSES, TinyKit


def run(tmp_path: Path, tiny: TinyKit = TinyKit(), **changes: object) -> Path:  # noqa: B008
    kit = tiny.write(tmp_path / "kit")
    photos = write_photos(tmp_path / "photos", CLASSES, each=8)
    progress = changes.pop("progress", Silent())
    train(kit, photos, tmp_path / "run", make_settings(**changes), progress=progress)
    return tmp_path / "run"


def test_the_description_is_of_the_best_values(tmp_path: Path) -> None:
    folder = run(tmp_path)
    model, best = Model.open(folder), TrainedNetwork.load(folder / BEST)
    known = Known.load(folder / "known.safetensors", best.kit, best.step)
    assert known is not None
    photos, names = tmp_path / "photos", CLASSES
    engine = OnnxEngine(model.kit, model.state)
    assert known.means.shape == (len(names), 6)
    assert np.isfinite(known.threshold)
    assert known.distances(engine.embed(np.zeros((1, 8, 8, 3), np.uint8))).shape == (1,)
    assert photos.is_dir()


class BulkyEngine(SoftmaxEngine):
    """Trains eight more parameters of half a megabyte, whose gradients take no memory."""

    names = tuple(f"bulk.{number}" for number in range(8))
    shape = (1 << 17,)

    def __init__(self, kit: Kit, state: Mapping[str, FloatArray]) -> None:
        super().__init__(kit, state)
        self.parameters |= {name: state[name].copy() for name in self.names}
        self.at_last_step = 0

    def gradients(self, images: Any, labels: Any, rng: Any) -> Gradients:
        result = super().gradients(images, labels, rng)
        zeros = np.broadcast_to(np.float32(0), self.shape)
        tracemalloc.reset_peak()
        self.at_last_step = tracemalloc.get_traced_memory()[0]
        return replace(result, values=result.values | dict.fromkeys(self.names, zeros))


def test_the_end_of_a_run_copies_the_network_nowhere(tmp_path: Path) -> None:
    small, names = write_softmax_kit(tmp_path / "small"), BulkyEngine.names
    specs = tuple(ParameterSpec(name, BulkyEngine.shape) for name in names)
    state = small.state() | {name: np.ones(BulkyEngine.shape, np.float32) for name in names}
    manifest = replace(small.manifest, parameters=small.manifest.parameters + specs)
    files = {name: hollow_graph(manifest, name) for name in required_files(manifest)[:-1]}
    files[PARAMETERS] = safetensors.numpy.save(state)
    kit, engines = write_kit(tmp_path / "kit", manifest, files), []
    del state, files

    def make(kit: Kit, state: Mapping[str, FloatArray]) -> BulkyEngine:
        engines.append(BulkyEngine(kit, state))
        return engines[-1]

    photos = write_colors(tmp_path / "photos")
    tracemalloc.start()
    try:
        result = train(kit, photos, tmp_path / "run", epochs=1, engine=make, progress=Silent())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert lines(result.run, "refit") and (result.run / KNOWN).exists()
    whole = sum(engines[-1].parameters[name].nbytes for name in names)
    assert 0 < engines[-1].at_last_step < peak < engines[-1].at_last_step + whole / 2


def test_many_photos_are_thinned_out_by_class_in_turn() -> None:
    groups = np.array([0] * 10 + [1] * 3 + [2] * 5)
    chosen = describe._even(groups, 8)
    assert np.bincount(groups[chosen]).tolist() == [3, 3, 2]
    assert describe._even(groups, 100).tolist() == list(range(18))


def test_the_pass_over_the_photos_is_shown(tmp_path: Path) -> None:
    class Collector(Silent):
        def photos(self, report: PhotosReport) -> None:
            shown.append(report)

        def close(self) -> None:
            shown.append(None)

    shown: list[PhotosReport | None] = []
    run(tmp_path, progress=Collector(), head_start="random")
    *before, last, closed = shown
    assert closed is None and last is not None
    assert (last.done, last.photos) == (24, 24)  # those of training, and of validation
    counts = [each.done for each in before if each is not None]
    assert counts == sorted(set(counts)) and counts[0] == TinyKit().batch
    assert (last.purpose, last.seconds_left) == ("what the classes look like", 0)


def test_no_more_photos_are_looked_at_than_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    embed = OnnxEngine.embed
    monkeypatch.setattr(known_module, "_PHOTOS", 7)
    monkeypatch.setattr(
        OnnxEngine, "embed", lambda self, images: (seen.append(len(images)), embed(self, images))[1]
    )
    run(tmp_path, val_fraction=0.0, head_start="random")
    assert sum(seen) == 7


def test_a_budget_without_room_for_it_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_module, "_BYTES", 1 << 40)
    assert not (run(tmp_path, budget="50GB") / KNOWN).exists()


def test_classes_that_are_too_many_are_not_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_module, "MOST", 1)
    assert not (run(tmp_path) / KNOWN).exists()


def test_a_kit_without_embeddings_is_trained_without_a_description(tmp_path: Path) -> None:
    folder = run(tmp_path, TinyKit(embeddings=False))
    assert Kit.open(folder).manifest.embeddings is None
    assert not (folder / KNOWN).exists()


def test_few_of_many_validation_photos_are_of_all_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    embedded = describe._embedded

    def watched(engine: Any, photos: Any, *others: Any) -> Any:
        asked.append(photos.dataset.labels.tolist())
        return embedded(engine, photos, *others)

    monkeypatch.setattr(describe, "_embedded", watched)
    monkeypatch.setattr(describe, "described_photos", lambda *_: len(CLASSES))
    run(tmp_path, val_fraction=0.5)
    assert [sorted(labels) for labels in asked] == [list(range(len(CLASSES)))] * 2
