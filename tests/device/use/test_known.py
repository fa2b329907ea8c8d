"""Telling photos of none of a run's classes, against the formula in plain float64."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketune.device import Delta, Model, Predictor, predict
from pocketune.device.use.known import DIRECTIONS, SHRINKAGE, Known
from pocketune.device.use.predict import DeltaPrediction, JudgedPrediction
from pocketune.device.use.unknown import known_of
from pocketune.errors import PocketuneError
from pocketune.kit.kit import Kit

from ..runs import write_photos, write_run
from ..tiny_kit import CLASSES, WIDTH, TinyKit


def clusters(seed: int, classes: int = 4, each: int = 40, size: int = 24) -> tuple:
    """Embeddings (N, D) of classes that differ along some directions more than along others."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(classes, size)) * 2
    spread = np.linspace(2.0, 0.1, size)
    labels = np.repeat(np.arange(classes), each)
    noise = rng.normal(size=(len(labels), size)) * spread
    return (means[labels] + noise).astype(np.float32), labels, means, spread


def reference(x: np.ndarray, labels: np.ndarray, new: np.ndarray) -> np.ndarray:
    """The distances by the whole covariance matrix, in float64."""
    x = x.astype(np.float64)
    classes = np.unique(labels)
    means = np.stack([x[labels == k].mean(0) for k in classes])
    centered = x - means[np.searchsorted(classes, labels)]
    covariance = centered.T @ centered / (len(x) - len(classes))
    values, vectors = np.linalg.eigh(covariance)
    values, size = values.copy(), len(values)
    values[:-DIRECTIONS] = values[:-DIRECTIONS].mean()  # equal in all but the largest
    values = (1 - SHRINKAGE) * values + SHRINKAGE * np.trace(covariance) / size
    whitening = vectors / np.sqrt(values) @ vectors.T
    center = means.mean(0)

    def unit(rows: np.ndarray) -> np.ndarray:
        mapped = (rows - center) @ whitening
        return mapped / np.linalg.norm(mapped, axis=1, keepdims=True)

    return 1 - (unit(new.astype(np.float64)) @ unit(means).T).max(1)


@settings(max_examples=25)
@given(seed=st.integers(0, 1000), classes=st.integers(2, 6), size=st.integers(18, 40))
def test_distances_are_those_of_the_whole_covariance(seed: int, classes: int, size: int) -> None:
    x, labels, _, _ = clusters(seed, classes, size=size)
    new = np.random.default_rng(seed + 1).normal(size=(9, size)).astype(np.float32) * 3
    found = Known.fit(x, labels).distances(new)
    np.testing.assert_allclose(found, reference(x, labels, new), atol=2e-4)


@pytest.mark.parametrize("held_out", [True, False])
def test_the_chosen_share_of_new_known_photos_is_accepted(held_out: bool) -> None:
    accepted = []
    for seed in range(8):
        x, labels, means, spread = clusters(seed, each=100)
        rng = np.random.default_rng(100 + seed)
        new = (means[labels] + rng.normal(size=x.shape) * spread).astype(np.float32)
        others = (means[labels] + rng.normal(size=x.shape) * spread).astype(np.float32)
        known = Known.fit(x, labels, others if held_out else None, kept=0.9)
        accepted.append(float((known.distances(new) <= known.threshold).mean()))
    assert np.mean(accepted) == pytest.approx(0.9, abs=0.02)


def test_photos_of_another_class_are_further_away() -> None:
    x, labels, _, _ = clusters(0)
    known = Known.fit(x[labels != 3], labels[labels != 3])
    assert np.median(known.distances(x[labels == 3])) > known.threshold


def test_few_validation_photos_do_not_choose_the_threshold() -> None:
    x, labels, _, _ = clusters(0)
    assert Known.fit(x, labels, x[:19]).threshold == Known.fit(x, labels).threshold
    assert Known.fit(x, labels, x[:20]).threshold != Known.fit(x, labels).threshold


def test_classes_of_a_single_photo_do_not_choose_the_threshold() -> None:
    x, labels, _, _ = clusters(0, classes=8, each=12)
    few = (labels < 4) | (np.arange(len(labels)) % 12 == 0)  # four classes of 12, and four of one
    without = Known.fit(x[labels < 4], labels[labels < 4]).threshold
    assert Known.fit(x[few], labels[few]).threshold < 1.2 * without


def test_a_single_photo_of_each_class_accepts_all() -> None:
    x, labels, _, _ = clusters(0, each=1)
    assert Known.fit(x, labels).threshold == 2


@pytest.mark.parametrize("each", [1, 2])
def test_a_photo_or_two_of_each_class_are_enough_to_say_something(each: int) -> None:
    x, labels, _, _ = clusters(0, each=each)
    known = Known.fit(x, labels)
    assert not np.isnan(known.distances(x)).any()
    assert known.threshold > 0


def test_equal_embeddings_give_no_nan() -> None:
    x, labels = np.ones((6, 4), np.float32), np.arange(6) % 2
    assert not np.isnan(Known.fit(x, labels).distances(x)).any()


def test_equal_photos_of_a_class_have_no_negative_distance() -> None:
    x, labels = clusters(0)[:2]
    copies, classes = np.repeat(x[::40], 4, axis=0), np.repeat(labels[::40], 4)
    known = Known.fit(copies, classes)
    assert 0 < float(known.threshold) < 1e-3
    assert (known.distances(copies) >= 0).all()


def trained(folder: Path) -> Path:
    """A run that has described its classes by random embeddings."""
    kit = Kit.open(write_run(folder))
    rng = np.random.default_rng(0)
    x = rng.random((60, WIDTH), dtype=np.float32)
    Known.fit(x, np.arange(60) % 3).save(kit.path, kit.identity, 5)
    return kit.path


def test_a_file_of_a_run_comes_back(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    model = Model.open(run)
    known = known_of(model)
    again = Known.load(run / "known.safetensors", model.kit.identity, 5)
    assert again is not None
    for name, value in known.tensors().items():
        np.testing.assert_array_equal(value, again.tensors()[name])
    assert Known.load(run / "known.safetensors", model.kit.identity, 6) is None  # of other values
    assert Known.load(run / "known.safetensors", "another kit", 5) is None


def test_predictions_say_what_they_do_not_know(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    photos = write_photos(tmp_path / "photos", CLASSES, each=3)
    judged = list(predict(run, photos, unknown=True))
    plain = list(predict(run, photos))
    assert [each.prediction for each in judged] == plain
    for each, result in zip(judged, plain, strict=True):
        assert isinstance(each, JudgedPrediction)
        assert each.to_dict() == {
            **result.to_dict(),
            "unknown": each.distance > 1,
            "distance": each.distance,
        }
        assert str(each) == (f"none of these ({result})" if each.unknown else str(result))
    predictor = Predictor(run, unknown=True)
    for file, expected in zip(sorted(photos.rglob("*.png")), judged, strict=True):
        found = predictor.predict(file.read_bytes(), str(file))
        assert isinstance(found, JudgedPrediction)
        assert isinstance(expected, JudgedPrediction)
        assert found.distance == pytest.approx(expected.distance, rel=1e-4)
    assert not JudgedPrediction("a", plain[0], 1.0).unknown
    assert JudgedPrediction("a", plain[0], float("nan")).unknown


def test_a_delta_brings_what_its_run_knows(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    kit = TinyKit().write(tmp_path / "kit")
    Delta.of(run).save(tmp_path / "d.safetensors")
    photos = write_photos(tmp_path / "photos", CLASSES, each=2)
    by_delta = list(predict(kit.path, photos, deltas=[tmp_path / "d.safetensors"], unknown=True))
    assert all(isinstance(each, DeltaPrediction) for each in by_delta)
    assert [each.prediction for each in by_delta] == list(predict(run, photos, unknown=True))


def test_a_damaged_description_is_refused() -> None:
    tensors = Known.fit(*clusters(0)[:2]).tensors()
    for name, value in tensors.items():
        broken = {**tensors, name: np.zeros((*value.shape, 2), np.float32)}
        with pytest.raises(PocketuneError, match="f does not describe known classes; train the"):
            Known.of_tensors(broken, "f")
        del broken[name]
        with pytest.raises(PocketuneError, match="f does not describe known classes; train the"):
            Known.of_tensors(broken, "f")
