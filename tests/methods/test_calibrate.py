"""Calibration: what is trained, and that every batch norm follows the photos."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pocketune.methods import Calibrate, LastLayer, adapt
from pocketune.weights import create_network


@pytest.mark.parametrize("name", ["mobilenet_v2", "pspnet"])
def test_the_classifier_is_trained_and_all_statistics_move(name: str) -> None:
    original = create_network(name, width=0.1, classes=3)
    adapted = adapt(original, Calibrate()).train()
    trained = {name for name, p in adapted.named_parameters() if p.requires_grad}
    assert trained == set(LastLayer().plan(original).trained)
    norms = {n: m for n, m in adapted.named_modules() if isinstance(m, nn.BatchNorm2d)}
    assert norms.keys() == {n for n, m in original.named_modules() if hasattr(m, "running_mean")}
    adapted(torch.randn(4, 3, 64, 64)).sum().backward()
    for norm in norms.values():
        assert norm.running_mean.any() and norm.weight.grad is None


def test_the_statistics_are_those_of_the_batches() -> None:
    network = adapt(nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 2, 1)), Calibrate()).train()
    images = 3 + 2 * torch.randn(8, 3, 16, 16)
    for _ in range(60):
        network(images)
    torch.testing.assert_close(network[0].running_mean, images.mean((0, 2, 3)), rtol=0.02, atol=0)
    torch.testing.assert_close(network[0].running_var, images.var((0, 2, 3)), rtol=0.02, atol=0)
