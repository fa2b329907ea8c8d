"""Retraining a network of attributes: each is a question of its own."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional

from pocketune.data import load_splits
from pocketune.distillation.predictions import Predictions

from .examples import network


@pytest.fixture
def photos(tmp_path):
    rows = ["file,bright,round"]
    for number in range(4):
        Image.fromarray(np.full((8, 8, 3), 60 * number, np.uint8)).save(tmp_path / f"{number}.png")
        rows.append(f"{number}.png,{number // 2},{number % 2}")
    (tmp_path / "table.csv").write_text("\n".join(rows))
    return load_splits(tmp_path / "table.csv", val_fraction=0.0).train


def test_attributes_are_followed_one_by_one(photos):
    teacher, student = network(), network()
    kept = Predictions(student, photos, teacher, share=1.0, temperature=2.0, label_smoothing=0.0)
    images, labels = torch.rand(3, 3, 32, 32), torch.zeros(3, 2, dtype=torch.uint8)
    logits = torch.randn(3, 2, requires_grad=True)
    wanted = teacher.eval()(images)
    soft = torch.sigmoid(wanted / 2)
    entropy = functional.binary_cross_entropy(soft, soft)
    expected = 4 * (functional.binary_cross_entropy_with_logits(logits / 2, soft) - entropy)
    torch.testing.assert_close(kept.loss(logits, images, labels), expected)


def test_what_all_attributes_share_is_followed_too(photos):
    """A softmax over attributes would not see it."""
    kept = Predictions(
        network(), photos, network(), share=1.0, temperature=1.0, label_smoothing=0.0
    )
    wanted = kept._log_shares(torch.full((1, 2), 3.0))
    labels = torch.ones(1, 2, dtype=torch.uint8)
    assert kept.loss_to(wanted, torch.full((1, 2), -3.0), labels) > 1


def test_classes_are_followed_together_where_the_photos_have_other_labels(photos):
    teacher, student = network(classes=5), network(classes=5)
    kept = Predictions(student, photos, teacher, share=0.5, temperature=1.0, label_smoothing=0.0)
    logits = torch.randn(2, 5)
    torch.testing.assert_close(kept._log_shares(logits), logits.log_softmax(1))
