"""Every network of the registry that classifies pixels compiles, each with another method."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pocketune.compiler import compile
from pocketune.methods import (
    Calibrate,
    GradientFilter,
    LastLayer,
    Method,
    MobileTL,
    TinyTL,
    TopBlocks,
    adapt,
)
from pocketune.networks import list_networks
from pocketune.tasks import Segmentation, numbered
from pocketune.weights import create_network

PYRAMID = {
    **{f"decode_head.aspp.{place}.0": patch for place, patch in enumerate((3, 3, 6, 9))},
    "decode_head.bottleneck.0": 3,
}
LEVELS = {
    "decode_head.fpn_bottleneck.0": 8,
    **{f"decode_head.fpn_convs.{place}.0": patch for place, patch in enumerate((8, 4, 2))},
}
CASES = [  # network, backbone, method
    ("deeplabv3", "mobilenet_v2", GradientFilter(PYRAMID, layers=7)),
    ("deeplabv3_torchvision", "mobilenet_v3_small", TinyTL(lite_residual=False)),
    ("fcn", None, GradientFilter(2, layers=5)),
    ("fcn_torchvision", "resnet18", TopBlocks(blocks=0)),
    ("lraspp", "mobilenet_v3_small", LastLayer()),
    ("pspnet", None, Calibrate()),
    ("pspnet", "mobilenet_v2", MobileTL(blocks=1)),
    ("upernet", None, GradientFilter(LEVELS)),
]


def test_every_network_is_there() -> None:
    assert {name for name, *_ in CASES} == set(list_networks(dense=True))


@pytest.mark.parametrize(("name", "backbone", "method"), CASES)
def test_five_steps_are_those_of_pytorch(
    name: str, backbone: str | None, method: Method, tmp_path: Path
) -> None:
    """`compile` itself compares every tensor."""
    torch.manual_seed(0)
    network = create_network(name, backbone=backbone, width=0.1, head_channels=8, classes=3)
    task = Segmentation(numbered(3))
    kit = compile(adapt(network, method), tmp_path / "kit", batch=2, size=48, task=task)
    assert kit.manifest.network["name"] == name
    groups = {s.group for s in kit.manifest.parameters if s.name.startswith("decode_head.")}
    assert groups <= {"decode_head"}  # as it is random
    side = {"upernet": 12, "deeplabv3_torchvision": 3}.get(name, 6)
    assert kit.manifest.task.output_size == (side, side)
