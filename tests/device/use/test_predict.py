"""Predicting files and folders."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pocketune.data import Skipped, center_crop, open_image
from pocketune.device.engine import session
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.use.delta import Delta
from pocketune.device.use.model import Model
from pocketune.device.use.predict import DeltaPrediction, predict
from pocketune.errors import PocketuneError
from pocketune.kit.kit import Kit
from pocketune.tasks.classification import ClassPrediction, softmax

from ..runs import trained_state, write_best, write_photo, write_photos
from ..tiny_kit import CLASSES, TinyKit


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return write_photos(tmp_path / "photos", CLASSES, each=3)


def pixels(path: Path) -> np.ndarray:
    with path.open("rb") as file:
        return center_crop(open_image(file), 8)


def test_every_image_of_a_folder_in_order(run: Path, photos: Path) -> None:
    results = list(predict(run, [photos]))
    expected = [str(photos / name / f"{i}.png") for name in sorted(CLASSES) for i in range(3)]
    assert [result.name for result in results] == expected
    model = Model.open(run)
    logits = OnnxEngine(model.kit, model.state).predict(
        np.stack([pixels(Path(n)) for n in expected])
    )
    for result, row in zip(results, softmax(logits), strict=True):
        assert isinstance(result, ClassPrediction)
        assert len(result.guesses) == 3
        assert {g.label: pytest.approx(g.probability, abs=1e-5) for g in result.guesses} == dict(
            zip(CLASSES, row, strict=True)
        )
        shares = [guess.probability for guess in result.guesses]
        assert shares == sorted(shares, reverse=True)
        assert sum(shares) == pytest.approx(1)


def test_one_path(run: Path, photos: Path) -> None:
    file = photos / "cat" / "0.png"
    assert list(predict(run, str(file))) == list(predict(run, [file]))


@pytest.mark.parametrize(("top", "given"), [(1, 1), (2, 2), (3, 3), (50, 3)])
def test_top(run: Path, photos: Path, top: int, given: int) -> None:
    (result,) = predict(run, [photos / "cat" / "0.png"], top=top)
    assert isinstance(result, ClassPrediction)
    assert len(result.guesses) == given


def test_top_of_nothing(run: Path, photos: Path) -> None:
    with pytest.raises(PocketuneError, match="top=0"):
        predict(run, [photos], top=0)


def test_files_that_are_not_images_are_listed(run: Path, photos: Path) -> None:
    (photos / "cat" / "notes.txt").write_text("not a photo")
    (photos / "dog" / "0.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    results = list(predict(run, [photos]))
    skipped = [result for result in results if isinstance(result, Skipped)]
    assert {Path(s.name).name for s in skipped} == {"notes.txt", "0.png"}
    assert all(s.reason for s in skipped)
    assert len(results) == 10
    assert len({result.name for result in results}) == 10


def test_only_unreadable_files(run: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_text("")
    (result,) = predict(run, [tmp_path / "a.jpg"])
    assert isinstance(result, Skipped)


def test_unicode_and_long_names(run: Path, tmp_path: Path) -> None:
    names = ["写真 é.png", "n" * 240 + ".png"]
    paths = [write_photo(tmp_path / name, seed) for seed, name in enumerate(names)]
    assert [result.name for result in predict(run, paths)] == list(map(str, paths))


def test_errors_come_at_once(run: Path, tmp_path: Path) -> None:
    with pytest.raises(PocketuneError, match="nowhere"):
        predict(run, [tmp_path / "nowhere"])
    with pytest.raises(PocketuneError, match="there is no kit"):
        predict(tmp_path / "no run", [tmp_path])


def test_results_come_batch_by_batch(run: Path, photos: Path) -> None:
    results = predict(Model.open(run), [os.fspath(photos)])
    assert isinstance(next(results), ClassPrediction)
    results.close()  # type: ignore[attr-defined]


def test_probabilities_survive_large_logits() -> None:
    logits = np.array([[1e4, 0, -1e4], [-3e38, -3e38, -3e38]], np.float32)
    np.testing.assert_allclose(softmax(logits), [[1, 0, 0], [1 / 3] * 3])


def two_deltas(tmp_path: Path) -> list[Delta]:
    """Of runs of one kit, the second on two classes instead of three."""
    deltas = []
    for seed, tiny in enumerate([TinyKit(), TinyKit(classes=("a", "b"))]):
        kit = TinyKit().write(tmp_path / f"run{seed}")
        write_best(kit.path, kit, trained_state(tiny, seed), tiny.classes)
        deltas.append(Delta.of(kit.path))
    return deltas


def test_each_photo_by_each_delta_as_each_run_predicts_it(tmp_path: Path, photos: Path) -> None:
    kit = TinyKit().write(tmp_path / "kit.zip")
    deltas = two_deltas(tmp_path)
    deltas[1].save(tmp_path / "second.safetensors")
    results = list(predict(kit.path, photos, deltas=[deltas[0], tmp_path / "second.safetensors"]))
    assert all(isinstance(each, DeltaPrediction) for each in results)
    names = [str(tmp_path / "run0"), str(tmp_path / "second.safetensors")]
    assert [each.delta for each in results] == names * 9
    for number in range(2):
        alone = list(predict(tmp_path / f"run{number}", photos))
        assert [each.prediction for each in results[number::2]] == alone
    assert str(results[0]) == f"{names[0]}: {results[0].prediction}"
    assert list(results[0].to_dict()) == ["image", "delta", "classes"]


def test_the_frozen_part_runs_once_for_each_photo_and_no_graph_is_opened_again(
    tmp_path: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit = TinyKit().write(tmp_path / "kit")
    opened: list[str] = []
    images: list[int] = []
    make, run = session.Graph.__init__, session.Graph.run

    def counted_make(self: session.Graph, kit: Kit, name: str, **options: Any) -> None:
        opened.append(name)
        make(self, kit, name, **options)

    def counted_run(self: session.Graph, feeds: Any, **options: Any) -> Any:
        images.append(len(feeds["images"]) if "images" in feeds else 0)
        return run(self, feeds, **options)

    monkeypatch.setattr(session.Graph, "__init__", counted_make)
    monkeypatch.setattr(session.Graph, "run", counted_run)
    assert len(list(predict(kit.path, photos, deltas=two_deltas(tmp_path)))) == 18
    assert sorted(opened) == ["features.onnx", "predict.onnx"]
    assert sum(images) == 9


def test_a_delta_of_another_kit_is_refused_before_any_photo_is_read(
    run: Path, tmp_path: Path, photos: Path
) -> None:
    other = TinyKit(size=16).write(tmp_path / "other")
    with pytest.raises(PocketuneError, match="is a delta of the kit"):
        predict(other.path, photos, deltas=[Delta.of(run)])
