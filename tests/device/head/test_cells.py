"""The classifier of a decode head in closed form, against a plain fit in float64."""

from dataclasses import replace

import numpy as np
import pytest

from pocketune.device.head import cells as cells_module
from pocketune.device.head.cells import CellFit, cell_bytes, cell_channels
from pocketune.device.head.fit import STRENGTHS
from pocketune.device.head.trial import TEMPERATURES
from pocketune.tasks import Box, Segmentation
from pocketune.tasks.maps import IGNORED, Truth

from ..pixel_kit import write_pixel_kit

CHANNELS, CLASSES, PHOTOS = 4, 3, 7
WEIGHTS = (0.5, 1.0, 3.0)
TASK = replace(Segmentation(("a", "b", "c")), class_weights=WEIGHTS)


@pytest.fixture(scope="module")
def photos():
    """Feature maps and masks; features tell the classes apart, with noise."""
    rng = np.random.default_rng(0)
    masks = rng.integers(0, CLASSES, (PHOTOS, 3, 6)).astype(np.uint8)
    centers = rng.standard_normal((CLASSES, CHANNELS))
    maps = centers[masks] + rng.standard_normal((*masks.shape, CHANNELS))
    masks[:, 0, :2] = IGNORED
    return np.moveaxis(maps, -1, 1).astype(np.float32), masks


def fitted(photos, task=TASK):
    fit = CellFit(task, CHANNELS, PHOTOS)
    for each, mask in zip(*photos, strict=True):
        fit.add(each, Truth(mask, Box(0, 0, 6, 3)))
    return fit


def flat(photos, chosen):
    maps, masks = photos
    rows = np.moveaxis(maps[chosen], 1, -1).reshape(-1, CHANNELS).astype(np.float64)
    classes = masks[chosen].reshape(-1)
    return rows[classes != IGNORED], classes[classes != IGNORED]


def ridge(rows, classes, strength):
    own = np.array(WEIGHTS)[classes]
    own /= own.sum()
    targets = np.eye(CLASSES)[classes]
    centered, wanted = rows - own @ rows, targets - own @ targets
    spread = centered.T @ (own[:, None] * centered)
    penalty = strength * np.trace(spread) / CHANNELS * np.eye(CHANNELS)
    weight = np.linalg.solve(spread + penalty, centered.T @ (own[:, None] * wanted)).T
    return weight, own @ targets - weight @ (own @ rows)


def cross_entropy(logits, classes):
    own = np.array(WEIGHTS)[classes]
    terms = np.logaddexp.reduce(logits, axis=1) - logits[np.arange(len(classes)), classes]
    return own @ terms / own.sum(), terms.mean()


def iou(logits, classes):
    guess = logits.argmax(1)
    return np.mean(
        [
            ((guess == k) & (classes == k)).sum() / ((guess == k) | (classes == k)).sum()
            for k in range(CLASSES)
        ]
    )


def test_penalty_and_factor_are_those_of_the_lowest_loss_on_the_other_half(photos):
    halves = [flat(photos, slice(start, None, 2)) for start in (0, 1)]
    losses = np.zeros((len(STRENGTHS), len(TEMPERATURES)))
    outputs = []
    for number, strength in enumerate(STRENGTHS):
        parts = [
            rows @ weight.T + bias
            for (rows, _), (weight, bias) in zip(
                halves, [ridge(*half, strength) for half in halves[::-1]], strict=True
            )
        ]
        logits, classes = np.concatenate(parts), np.concatenate([c for _, c in halves])
        outputs.append(logits)
        losses[number] = [cross_entropy(factor * logits, classes)[0] for factor in TEMPERATURES]
    chosen, near = np.unravel_index(losses.argmin(), losses.shape)

    head = fitted(photos).head()
    assert head is not None and head.score is not None
    assert (head.name, head.strength) == ("ridge", STRENGTHS[chosen])
    weight, bias = ridge(*flat(photos, slice(None)), STRENGTHS[chosen])
    factor = float(head.weight[0, 0] / weight[0, 0])
    assert TEMPERATURES[near] / 2 < factor < TEMPERATURES[near] * 2
    assert cross_entropy(factor * outputs[chosen], classes)[0] < 1.01 * losses.min()
    np.testing.assert_allclose(head.weight, factor * weight, rtol=1e-4)
    np.testing.assert_allclose(head.bias, factor * bias, rtol=1e-4, atol=1e-6)
    assert head.score.value == pytest.approx(iou(outputs[chosen], classes))
    loss = cross_entropy(factor * outputs[chosen], classes)[1]
    assert head.score.loss == pytest.approx(loss, rel=1e-5)


def test_another_classifier_is_judged_on_the_same_cells(photos):
    rng = np.random.default_rng(1)
    weight, bias = rng.standard_normal((CLASSES, CHANNELS)), rng.standard_normal(CLASSES)
    rows, classes = flat(photos, slice(None))
    logits = rows @ weight.T + bias
    score = fitted(photos).score(weight.astype(np.float32), bias.astype(np.float32))
    assert score.value == pytest.approx(iou(logits, classes))
    assert score.loss == pytest.approx(cross_entropy(logits, classes)[1], rel=1e-5)


def test_the_sample_is_bounded_and_the_fit_has_every_cell(photos, monkeypatch):
    whole = fitted(photos).head()
    monkeypatch.setattr(cells_module, "SAMPLED", 20 * CHANNELS)
    fit = fitted(photos)
    assert sum(len(classes) for half in fit._sample for _, classes in half) == 2 * PHOTOS
    head = fit.head()
    directions = [each.weight / np.linalg.norm(each.weight) for each in (head, whole)]
    assert (directions[0] * directions[1]).sum() > 0.99
    assert fitted(photos).head().weight.tobytes() == head.weight.tobytes()


def test_one_photo_gives_a_classifier_without_a_score(photos):
    maps, masks = photos
    head = fitted((maps[:1], masks[:1])).head()
    assert head.score is None
    weight, _ = ridge(*flat(photos, slice(1)), head.strength)
    np.testing.assert_allclose(head.weight / head.weight[0, 0], weight / weight[0, 0], rtol=1e-4)


def test_masks_that_are_ignored_give_none(photos):
    maps, masks = photos
    assert fitted((maps, np.full_like(masks, IGNORED))).head() is None


def test_a_class_that_does_not_occur_is_not_predicted(photos):
    maps, masks = photos
    head = fitted((maps, np.where(masks == 2, IGNORED, masks))).head()
    rows, _ = flat(photos, slice(None))
    assert set((rows @ head.weight.T + head.bias).argmax(1)) == {0, 1}


def test_which_kits_have_one(tmp_path):
    manifest = write_pixel_kit(tmp_path / "kit").manifest
    assert cell_channels(manifest, trained=False) == 3
    weight, bias = manifest.parameters
    large = replace(weight, shape=(3, 3, 3, 3)), bias
    assert cell_channels(replace(manifest, parameters=large), trained=False) is None
    no_bias = replace(manifest, task=replace(manifest.task, head=("head.weight",)))
    assert cell_channels(no_bias, trained=False) is None
    random = write_pixel_kit(tmp_path / "random", decode_head=True).manifest
    assert cell_channels(random, trained=False) is None
    assert cell_channels(random, trained=True) == 3


def test_its_memory_grows_with_the_map_and_not_with_the_photos():
    assert cell_bytes(64, 11, 900) < cell_bytes(64, 11, 3600) < cell_bytes(128, 11, 3600)
