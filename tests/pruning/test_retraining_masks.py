"""Retraining a network of pixels from masks."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from pocketune.data import load_splits
from pocketune.distillation.predictions import Predictions
from pocketune.errors import PocketuneError
from pocketune.networks import about
from pocketune.pruning import Recipe, retrain
from pocketune.surgery import prune
from pocketune.weights import load_network

from .examples import dense_network, network


@pytest.mark.parametrize("taught", [False, True])
def test_a_pruned_network_of_pixels_learns_from_masks(scenes, tmp_path, taught):
    pytest.importorskip("lightning_fabric")
    teacher = dense_network()
    pruned = prune(teacher, {"backbone.2": 0.5}, importance="weight")
    out = tmp_path / "out.safetensors"
    losses = retrain(
        pruned,
        scenes,
        out,
        recipe=Recipe(epochs=3, lr=0.05, batch=3, size=32, class_weights="balanced"),
        teacher=teacher if taught else None,
        accelerator="cpu",
    )
    assert losses[-1] < losses[0]
    again = load_network(out)
    assert about(again).config.hidden == about(pruned).config.hidden
    assert not about(again).random_decode_head


def test_the_parts_of_the_loss_of_masks(scenes):
    photos = load_splits(scenes, val_fraction=0.0).train
    weighted = replace(photos, task=photos.labeled.balanced(photos.labels))
    network, teacher = dense_network(), dense_network()
    kept = Predictions(network, weighted, teacher, share=0.25, temperature=2.0, label_smoothing=0.0)
    labels = torch.randint(0, 3, (2, 32, 32), dtype=torch.uint8)
    labels[0, 0] = 255
    logits, wanted = torch.randn(2, 3, 4, 4), torch.randn(2, 3, 4, 4).log_softmax(1)
    weights = torch.tensor(weighted.labeled.class_weights, dtype=torch.float32)
    larger = functional.interpolate(logits, (32, 32), mode="bilinear")
    own = functional.cross_entropy(larger, labels.long(), weights, ignore_index=255)
    given = (logits / 2).log_softmax(1)
    apart = (wanted.exp() * (wanted - given)).sum(1).mean()
    expected = 0.75 * own + 0.25 * 4 * apart
    torch.testing.assert_close(kept.loss_to(wanted, logits, labels), expected)


def test_labels_of_another_kind_need_a_teacher(photos, scenes, tmp_path):
    out, masks = tmp_path / "out.safetensors", load_splits(scenes).train
    with pytest.raises(PocketuneError, match="have masks, and the network classifies images"):
        retrain(network(3), masks, out)
    with pytest.raises(PocketuneError, match="have classes, and the network classifies pixels"):
        retrain(dense_network(), photos, out)
    with pytest.raises(PocketuneError, match="has no weights of its classes"):
        retrain(network(), photos, out, recipe=Recipe(class_weights="balanced"))
