"""Logits are adjusted as in equation 10 of Menon et al. (2021)."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pocketune.data.dataset import ImageDataset
from pocketune.data.names import Names
from pocketune.data.sources import PathSource
from pocketune.device.train.adjustment import Adjustment
from pocketune.device.train.loop import validate
from pocketune.tasks import Attributes, Classification, Task

COUNTS = (100, 10, 1)
HEAD = ("fc.weight", "fc.bias")


def photos(task: Task) -> ImageDataset:
    """Photos of three classes of so many."""
    labels = np.repeat(np.arange(3), COUNTS)
    if task.name == "attributes":
        labels = np.eye(3, dtype=np.uint8)[labels]
    return ImageDataset(PathSource(), Names(map(str, range(len(labels)))), labels, task)


def adjustment(balance: float, task: Task) -> Adjustment | None:
    return Adjustment.of(photos(task), task, balance)


@pytest.mark.parametrize("balance", [0.5, 1.0])
def test_the_loss_is_that_of_the_paper(balance: float) -> None:
    task = Classification(("a", "b", "c"), head=HEAD)
    found = adjustment(balance, task)
    assert found is not None and found.offsets.mean() == pytest.approx(0, abs=1e-6)
    logits = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    frequencies = np.array(COUNTS) / sum(COUNTS)
    for label in range(3):
        labels = np.full(5, label)
        margins = logits.astype(np.float64) - logits[:, [label]]
        powers = (frequencies / frequencies[label]) ** balance * np.exp(margins)
        np.testing.assert_allclose(
            task.losses(logits + found.offsets, labels), np.log(powers.sum(axis=1)), rtol=1e-5
        )


def test_values_are_adjusted_and_back() -> None:
    found = adjustment(1.0, Classification(("a", "b", "c"), head=HEAD))
    assert found is not None
    values = {"fc.weight": np.ones((3, 2), np.float32), "fc.bias": np.zeros(3, np.float32)}
    trained = found.add_to(values)
    np.testing.assert_array_equal(trained["fc.bias"], found.offsets)
    assert not values["fc.bias"].any()
    back = found.remove_from(trained)
    assert not back["fc.bias"].any() and back["fc.weight"] is values["fc.weight"]


def test_classes_that_do_not_exclude_each_other_are_not_adjusted() -> None:
    assert adjustment(1.0, Attributes(("a", "b", "c"), head=HEAD)) is None


def test_rare_classes_weigh_as_in_training() -> None:
    """With a balance of 1 and the classes' own frequencies, the metric is the mean recall."""
    task = Classification(("a", "b", "c"), head=HEAD)
    found = adjustment(1.0, task)
    assert found is not None
    metric = found.metric(task)
    rng = np.random.default_rng(1)
    labels = np.repeat(np.arange(3), COUNTS)
    outputs = rng.normal(size=(len(labels), 3)).astype(np.float32)
    for part in np.array_split(np.arange(len(labels)), 4):
        metric.update(outputs[part], labels[part])
    recalls = [(outputs[labels == k].argmax(axis=1) == k).mean() for k in range(3)]
    losses = [task.losses(outputs[labels == k], labels[labels == k]).mean() for k in range(3)]
    assert metric.images == len(labels)
    assert metric.score.value == pytest.approx(np.mean(recalls))
    assert metric.score.loss == pytest.approx(np.mean(losses))


def test_networks_with_equal_recalls_have_the_same_metric_to_the_bit() -> None:
    """So that their losses decide, and not which of their photos are wrong."""
    task = Classification(("a", "b", "c"), head=HEAD)
    found = adjustment(0.5, task)
    assert found is not None
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat(np.arange(3), (24, 8, 2)))
    scores = set()
    for _ in range(50):
        outputs = np.eye(3, dtype=np.float32)[labels]
        for group, wrong in enumerate((3, 2, 1)):
            outputs[rng.choice(np.flatnonzero(labels == group), wrong, replace=False)] *= -1
        metric = found.metric(task)
        for part in np.array_split(np.arange(len(labels)), 5):
            metric.update(outputs[part], labels[part])
        scores.add(metric.score.value)
    assert len(scores) == 1


def test_logits_are_those_of_the_values_without_it() -> None:
    found = adjustment(0.5, Classification(("a", "b", "c"), head=HEAD))
    assert found is not None
    logits = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(found.logits(logits + found.offsets), logits, rtol=1e-6)


def test_a_validation_judges_the_network_without_it() -> None:
    task = Classification(("a", "b", "c"), head=HEAD)
    found = adjustment(1.0, task)
    assert found is not None
    logits = np.array([[0.3, 0, 0], [0, 0.2, 0], [0, 0, 0.1]], np.float32)
    engine: Any = SimpleNamespace(predict=lambda _: logits + found.offsets)
    batch: Any = SimpleNamespace(images=None, labels=np.arange(3))
    assert (logits + found.offsets).argmax(axis=1).tolist() == [0, 0, 0]
    score = validate(engine, task, [batch], lambda: None, found.metric(task))
    plain = task.metric()
    plain.update(logits, batch.labels)
    assert score is not None and score.value == 1
    assert score.loss == pytest.approx(plain.score.loss, rel=1e-5)
