"""Every method on every network: a step is accounted for, and trains what the method names."""

from functools import lru_cache

import pytest
import torch
from torch import nn
from torch.nn import functional

from pocketune.accounting import account
from pocketune.layers import FrozenBatchNorm2d
from pocketune.methods import (
    adapt,
    final_plan,
    list_methods,
)
from pocketune.surgery import batch_norms
from pocketune.weights import create_network

from ..networks.names import EVERY_METHOD
from ..networks.shallow import shallow
from .examples import example_method

NETWORKS = [name for name in EVERY_METHOD if name not in ("resnet34", "resnet101")]
"""Those of other blocks than one before."""
PAIRS = [(network, method) for network in NETWORKS for method in list_methods()]
SOME = [
    (network, method)
    for row, network in enumerate(NETWORKS)
    for place, method in enumerate(list_methods())
    if (row + place) % 8 == 0
]
"""Every network with an eighth of the methods, and every method on one network or two."""


@lru_cache(maxsize=1)
def network(name: str) -> nn.Module:
    """Narrow where it can be, with each kind of block once."""
    made = create_network(name, classes=4, width=1.0 if name == "mcunet_5fps" else 0.25)
    return shallow(made)


@pytest.mark.parametrize(("network_name", "method_name"), SOME)
def test_the_memory_of_a_step_is_accounted_for(network_name: str, method_name: str) -> None:
    adapted = adapt(network(network_name), example_method(method_name, network_name))
    report = account(adapted, batch=2, size=32)
    assert 0 < report.kept_bytes < report.total_bytes


@pytest.mark.parametrize(("network_name", "method_name"), PAIRS)
def test_one_step(network_name: str, method_name: str) -> None:
    original = network(network_name)
    method = example_method(method_name, network_name)
    plan = final_plan(method, original)
    adapted = adapt(original, method).train()
    before = {name: buffer.clone() for name, buffer in adapted.named_buffers()}

    logits = adapted(torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0)))
    loss = functional.cross_entropy(logits, torch.tensor([0, 3]))
    loss.backward()

    assert torch.isfinite(loss)
    gradients = {name: p.grad for name, p in adapted.named_parameters() if p.grad is not None}
    assert gradients.keys() == plan.trained
    assert all(torch.isfinite(gradient).all() for gradient in gradients.values())
    changed = {n for n, b in adapted.named_buffers() if not torch.equal(b, before[n])}
    assert {name.rpartition(".")[0] for name in changed} == plan.batch_norms
    for name in batch_norms(original):
        kind = nn.BatchNorm2d if name in plan.batch_norms else FrozenBatchNorm2d
        assert isinstance(adapted.get_submodule(name), kind), name
