"""What a finished run leaves for telling photos of none of its classes."""

from pathlib import Path

import numpy as np
import pytest

from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.train import ending, train
from pocketune.device.train.checkpoint import TrainedNetwork
from pocketune.device.train.progress import PhotosReport, Silent
from pocketune.device.use.known import Known
from pocketune.device.use.model import Model
from pocketune.kit.kit import Kit
from pocketune.kit.names import BEST, KNOWN

from ..runs import make_settings, write_photos
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
    known = Known.load(folder, best.kit, best.step)
    assert known is not None
    photos, names = tmp_path / "photos", CLASSES
    engine = OnnxEngine(model.kit, model.state)
    assert known.means.shape == (len(names), 6)
    assert np.isfinite(known.threshold)
    assert known.distances(engine.embed(np.zeros((1, 8, 8, 3), np.uint8))).shape == (1,)
    assert photos.is_dir()


def test_many_photos_are_thinned_out_by_class_in_turn() -> None:
    groups = np.array([0] * 10 + [1] * 3 + [2] * 5)
    chosen = ending._even(groups, 8)
    assert np.bincount(groups[chosen]).tolist() == [3, 3, 2]
    assert ending._even(groups, 100).tolist() == list(range(18))


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
    monkeypatch.setattr(ending, "_PHOTOS", 7)
    monkeypatch.setattr(
        OnnxEngine, "embed", lambda self, images: (seen.append(len(images)), embed(self, images))[1]
    )
    run(tmp_path, val_fraction=0.0, head_start="random")
    assert sum(seen) == 7


def test_a_budget_without_room_for_it_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "_VALUES", 1 << 40)
    monkeypatch.setattr(ending, "_PHOTOS", 1 << 40)
    assert not (run(tmp_path, budget="50GB") / KNOWN).exists()


def test_a_kit_without_embeddings_is_trained_without_a_description(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TinyKit, "manifest", _without_embeddings(TinyKit.manifest))
    folder = run(tmp_path)
    assert Kit.open(folder).manifest.embeddings is None
    assert not (folder / KNOWN).exists()


def _without_embeddings(manifest):  # type: ignore[no-untyped-def]
    from dataclasses import replace

    return lambda self: replace(manifest(self), embeddings=None)
