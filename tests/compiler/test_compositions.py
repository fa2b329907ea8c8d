"""Sums of methods, adapted, accounted for and compiled."""

from pathlib import Path

import pytest
import torch

from pocketune.accounting import account
from pocketune.compiler import compile
from pocketune.methods import (
    GradientFilter,
    Method,
    MobileTL,
    NormAndLast,
    RepNet,
    SignedBackward,
    TinyTL,
    TopBlocks,
    adapt,
)
from pocketune.weights import create_network

from ..networks.shallow import shallow
from ..networks.timm_like import pooling_network


@pytest.mark.parametrize(
    "method",
    [
        MobileTL(blocks=2) + GradientFilter(layers="trained"),
        MobileTL(blocks=2) + NormAndLast(),
        MobileTL(blocks=2) + TinyTL(bias=False),
        MobileTL(blocks=2, patches="with") + SignedBackward(),
        MobileTL(blocks=2, patches="instead") + NormAndLast(),
        RepNet() + SignedBackward(),
        SignedBackward() + TinyTL(),
        TinyTL() + GradientFilter(layers="trained"),
        TopBlocks(blocks=2) + GradientFilter(patch=3, layers="trained") + SignedBackward(),
    ],
    ids=str,
)
def test_a_sum_of_methods(method: Method, tmp_path: Path) -> None:
    """`compile` itself compares every tensor with PyTorch for five steps."""
    torch.manual_seed(4)
    adapted = adapt(shallow(create_network("mobilenet_v2", width=0.1, classes=3)), method)
    assert account(adapted, batch=2, size=64).kept_bytes > 0
    compile(adapted, tmp_path / "kit", batch=2, size=64)


@pytest.mark.parametrize(
    "method", [RepNet(), TinyTL(), MobileTL(blocks=2, patches="with")], ids=str
)
@pytest.mark.parametrize("size", [64, 75])
def test_beside_blocks_that_stride_by_pooling(method: Method, size: int, tmp_path: Path) -> None:
    torch.manual_seed(4)
    adapted = adapt(pooling_network(), method)
    assert account(adapted, batch=2, size=size).kept_bytes > 0
    images = torch.randn(2, 3, size, size)
    adapted.train()(images).logsumexp(1).sum().backward()
    trained = [p for name, p in adapted.named_parameters() if p.requires_grad and "branch" in name]
    assert trained
    assert all(p.grad is not None and p.grad.isfinite().all() for p in trained)
    compile(adapted, tmp_path / "kit", batch=2, size=size)
