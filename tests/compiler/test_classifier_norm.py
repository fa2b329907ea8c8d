"""Batch norm between the layers of a classifier, in a kit."""

from pathlib import Path

import pytest
from torch import nn

from pocketune.compiler import compile
from pocketune.methods import BiasAndLast, FullFineTune, LastLayer, Method, adapt

from .networks import BATCH, CLASSES, SIZE, tiny


@pytest.mark.parametrize("method", [LastLayer(), BiasAndLast(), FullFineTune()], ids=str)
def test_it_compiles(method: Method, tmp_path: Path) -> None:
    """A kit is written only where it computes what PyTorch does; the first norm may be frozen."""
    network = tiny()
    layers = nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, CLASSES)
    network.classifier = nn.Sequential(nn.BatchNorm1d(4), *layers)
    adapted = adapt(network, method)
    kit = compile(adapted, tmp_path / "kit", batch=BATCH, size=SIZE)
    statistics = {spec.name for spec in kit.manifest.statistics}
    live = {name for name, module in adapted.named_modules() if type(module) is nn.BatchNorm1d}
    assert "classifier.2" in live
    assert {f"{name}.running_var" for name in live} <= statistics
