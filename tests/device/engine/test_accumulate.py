"""A large batch in parts, by an engine whose gradients are known."""

from __future__ import annotations

import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune.device.engine.accumulate import AccumulatingEngine
from pocketune.device.engine.base import Gradients
from pocketune.tasks import Classification

from ..pixel_kit import CELL, SIZE, PixelEngine, write_pixel_kit

TASK = Classification(("a", "b"))


class Linear:
    """The mean over the images of weight times pixel, as loss; counts images as its metric."""

    def __init__(self, weight: float = 2.0) -> None:
        self.parameters = {"weight": np.array([weight], np.float32)}
        self.statistics: dict[str, np.ndarray] = {}
        self.inputs: dict[str, np.ndarray] = {}
        self.parts: list[tuple[list[int], list[int]]] = []
        self.drawn: list[float] = []

    def gradients(self, images: np.ndarray, labels: np.ndarray, rng) -> Gradients:
        self.parts.append((images[:, 0, 0, 0].tolist(), labels.tolist()))
        self.drawn.append(rng.random())
        mean = images.mean(dtype=np.float32)
        loss = float(self.parameters["weight"][0] * mean)
        return Gradients(loss, {"correct": len(images)}, {"weight": np.array([mean])})

    def predict(self, images: np.ndarray) -> np.ndarray:
        return images[:, 0, 0].astype(np.float32)

    def embed(self, images: np.ndarray) -> np.ndarray:
        return 2 * self.predict(images)

    def release(self) -> None:
        self.parts.clear()

    def state(self) -> dict[str, np.ndarray]:
        return self.parameters

    def load(self, state) -> None:
        self.parameters = dict(state)


def images(*pixels: int) -> np.ndarray:
    return np.array(pixels, np.uint8)[:, None, None, None]


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_it_is_the_gradient_of_the_whole_batch(batch: int, parts: int, seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, batch * parts)
    photos, labels = images(*pixels), np.arange(batch * parts)
    whole = Linear().gradients(photos, labels, rng())
    found = AccumulatingEngine(Linear(), batch, TASK).gradients(photos, labels, rng())
    assert found.loss == pytest.approx(whole.loss, rel=1e-5)
    np.testing.assert_allclose(found.values["weight"], whole.values["weight"], rtol=1e-5)
    assert found.metrics == whole.metrics
    assert found.values["weight"].dtype == np.float32


def test_pixels_weigh_as_in_the_whole_batch_wherever_they_are_ignored(tmp_path: Path) -> None:
    kit = write_pixel_kit(tmp_path / "kit")
    task = replace(kit.manifest.task, loss_stride=CELL)  # as the engine reads labels
    engine = PixelEngine(kit, kit.state())
    engine.inputs["class_weights"][:] = 0.2, 1, 3
    random = np.random.default_rng(0)
    photos = random.integers(0, 256, (6, SIZE, SIZE, 3), np.uint8)
    masks = random.integers(0, 3, (6, SIZE, SIZE), np.uint8)
    masks[0], masks[2:4] = 255, 255  # half of the first part and all of the second
    whole = engine.gradients(photos, masks, rng())
    found = AccumulatingEngine(engine, 2, task).gradients(photos, masks, rng())
    assert found.loss == pytest.approx(whole.loss, rel=1e-5)
    assert found.metrics == whole.metrics
    for name, values in whole.values.items():
        np.testing.assert_allclose(found.values[name], values, atol=1e-5 * np.abs(values).max())
    nothing = AccumulatingEngine(engine, 2, task).gradients(photos, masks | 255, rng())
    assert (nothing.loss, nothing.values["head.bias"].any()) == (0, False)


def test_each_part_has_its_own_images_labels_and_masks() -> None:
    engine = Linear()
    AccumulatingEngine(engine, 2, TASK).gradients(images(1, 2, 3, 4), np.array([5, 6, 7, 8]), rng())
    assert engine.parts == [([1, 2], [5, 6]), ([3, 4], [7, 8])]
    assert engine.drawn == rng().random(2).tolist()


def test_no_part_starts_while_gradients_of_another_are_held() -> None:
    """They are views of the runtime's memory, where a part would have to find room beside them."""
    engine, held = Linear(), list[weakref.ref[np.ndarray]]()
    compute = engine.gradients

    def watched(*arguments) -> Gradients:
        assert [values for values in held if values() is not None] == []
        found = compute(*arguments)
        held.append(weakref.ref(found.values["weight"]))
        return found

    engine.gradients = watched  # type: ignore[method-assign]
    AccumulatingEngine(engine, 1, TASK).gradients(images(1, 2, 3), np.array([4, 5, 6]), rng())
    assert len(held) == 3


def test_all_else_is_the_engines() -> None:
    engine = Linear()
    parts = AccumulatingEngine(engine, 2, TASK)
    assert parts.parameters is engine.parameters
    assert parts.statistics == {}
    assert parts.predict(images(1, 2, 3)).tolist() == [[1], [2], [3]]
    assert parts.embed(images(1, 2, 3)).tolist() == [[2], [4], [6]]
    parts.load({"weight": np.array([7], np.float32)})
    assert parts.state()["weight"].tolist() == [7]
