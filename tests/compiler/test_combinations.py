"""Every network with its own kind of block, and every method, as kits."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pocketune.compiler import compile, draft
from pocketune.methods import adapt, list_methods, method_to_dict
from pocketune.networks import about
from pocketune.tasks import Attributes, Classification, numbered
from pocketune.weights import create_network

from ..methods.examples import example_method
from ..networks.names import EVERY_METHOD
from ..networks.shallow import shallow
from .networks import CLASSES

# Every baseline and every network among them, and every other method with one kind of block;
# tests/methods/test_every_network.py has every pair.
BASELINES = [
    ("resnet18", "full"),
    ("resnet18", "norm"),
    ("resnet18", "bias"),
    ("resnet34", "last"),
    ("resnet50", "blocks"),
    ("mobilenet_v2", "bias"),
    ("mobilenet_v2", "blocks"),
    ("mobilenet_v3_small", "full"),
    ("mobilenet_v3_large", "last"),
    ("proxylessnas_mobile", "norm"),
    ("mcunet_5fps", "blocks"),
]
OTHERS = sorted(set(list_methods()) - {method for _, method in BASELINES})
WITH_ATTRIBUTES = {"mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large", "mcunet_5fps"}
ALIKE = [  # of the same operators; each method has the next kind, and of it the next network
    ("resnet18", "resnet34", "resnet18_v1c"),
    ("resnet50", "resnet101"),
    ("mobilenet_v2", "ofa_mobilenet_v2", "proxylessnas_mobile", "mcunet_5fps"),
    ("mobilenet_v3_small", "mobilenet_v3_large"),
]
COMBINATIONS = BASELINES + [
    (alike[turn % len(alike)], method)
    for i, method in enumerate(OTHERS)
    for turn, alike in [(i // len(ALIKE), ALIKE[i % len(ALIKE)])]
]
WIDTHS = {
    "mobilenet_v2": 0.1,
    "ofa_mobilenet_v2": 0.1,
    "mobilenet_v3_small": 0.35,
    "mcunet_5fps": 1.0,
}


def test_every_network_and_method_is_compiled() -> None:
    names = set(EVERY_METHOD)
    assert {name for name, _ in COMBINATIONS} == names
    assert {name for alike in ALIKE for name in alike} == names
    assert {method for _, method in COMBINATIONS} == set(list_methods())
    assert set(DRAFTED) <= set(COMBINATIONS)


DRAFTED = [
    ("resnet18", "bias"),
    ("resnet18_v1c", "signed"),
    ("mobilenet_v3_small", "gradfilter"),
    ("resnet50", "calibrate"),
]


@pytest.mark.parametrize(("name", "method"), COMBINATIONS)
def test_networks_and_methods(name: str, method: str, tmp_path: Path) -> None:
    """`compile` itself compares every tensor with PyTorch for five steps; a draft skips that.

    Each kind of block is there once; images of some networks have attributes, so that every
    method meets both losses.
    """
    kind = Attributes if name in WITH_ATTRIBUTES else Classification
    step: dict[str, Any] = {"batch": 2, "size": 32, "task": kind(numbered(CLASSES))}
    torch.manual_seed(0)
    network = shallow(create_network(name, classes=CLASSES, width=WIDTHS.get(name, 0.25)))
    adapted = adapt(network, example_method(method, name))
    kit = compile(adapted, tmp_path / "kit", **step)
    assert (kit.manifest.network["name"], kit.manifest.task.name) == (name, kind.name)
    assert kit.manifest.method == method_to_dict(about(adapted).method)
    if (name, method) in DRAFTED:
        assert draft(adapted, **step) == replace(kit.manifest, files={})
