"""Every method on every network: one step trains exactly what the method names."""

from functools import lru_cache

import pytest
import torch
from torch import nn
from torch.nn import functional

from pocketune.layers import FrozenBatchNorm2d
from pocketune.methods import (
    adapt,
    final_plan,
    list_methods,
)
from pocketune.networks import list_networks
from pocketune.surgery import batch_norms
from pocketune.weights import create_network

from .examples import example_method


@lru_cache(maxsize=1)
def network(name: str) -> nn.Module:
    return create_network(name, classes=4)


@pytest.mark.parametrize("method_name", list_methods())
@pytest.mark.parametrize("network_name", list_networks())
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
