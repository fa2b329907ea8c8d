"""Every method on a network of group norms and standardized kernels."""

from functools import cache
from pathlib import Path

import pytest
import torch
from torch import nn

from pocketune.accounting import account
from pocketune.compiler import compile
from pocketune.layers import (
    FrozenConv2d,
    PrunedStandardizedConv2d,
    QuantizedConv2d,
    StandardizedConv2d,
)
from pocketune.layers.weight_standardization import standardize
from pocketune.methods import (
    ActivationPruning,
    BiasAndLast,
    FullFineTune,
    LastLayer,
    TinyTL,
    TopBlocks,
    adapt,
    final_plan,
    list_methods,
)
from pocketune.networks import anatomy
from pocketune.surgery import use_norms

from ..networks.small import small_mobilenet
from .examples import example_method
from .names import layers_of


@cache
def network() -> nn.Module:
    torch.manual_seed(0)
    made = small_mobilenet()
    use_norms(made, "group", standardized=True)
    for parameter in made.parameters():
        if parameter.dim() == 1:
            nn.init.uniform_(parameter, 0.5, 1.5)
    return made


@pytest.mark.parametrize("method_name", list_methods())
def test_one_step(method_name: str) -> None:
    method = example_method(method_name, "small")
    plan = final_plan(method, network())
    adapted = adapt(network(), method).train()
    adapted(torch.randn(1, 3, 32, 32)).logsumexp(1).sum().backward()
    gradients = {name: p.grad for name, p in adapted.named_parameters() if p.grad is not None}
    assert gradients.keys() == plan.trained
    assert all(torch.isfinite(gradient).all() for gradient in gradients.values())


@pytest.mark.parametrize("method_name", ["blocks", "gradfilter", "lora", "repnet", "tinytl"])
def test_the_memory_of_a_step_is_accounted_for(method_name: str) -> None:
    report = account(adapt(network(), example_method(method_name, "small")), batch=1, size=32)
    assert 0 < report.kept_bytes < report.total_bytes


@pytest.mark.parametrize("bits", [32, 8])
def test_frozen_kernels_are_standardized_once_and_trained_ones_in_every_step(bits: int) -> None:
    adapted = adapt(network(), TopBlocks(blocks=1), frozen_bits=bits)
    stem, top = adapted.get_submodule("features.0.0"), adapted.get_submodule("features.4.conv.0.0")
    assert type(stem) is (FrozenConv2d if bits == 32 else QuantizedConv2d)
    assert type(top) is StandardizedConv2d
    expected = standardize(network().get_parameter("features.0.0.weight"))
    kernel = stem.kernel()  # type: ignore[operator]
    torch.testing.assert_close(kernel, expected, rtol=0, atol=1e-6 if bits == 32 else 0.02)


@pytest.mark.parametrize("method", [LastLayer(), BiasAndLast(), TinyTL(), FullFineTune()], ids=str)
def test_the_network_computes_the_same_at_first(method) -> None:
    original = network().eval()
    adapted = adapt(original, method, frozen_bits=32).eval()
    images = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(adapted(images), original(images), rtol=1e-4, atol=1e-4)


def test_tinytl_needs_no_option_for_such_a_network() -> None:
    images = torch.randn(2, 3, 32, 32)
    outputs = []
    for norm in ("batch", "group"):
        torch.manual_seed(1)
        outputs.append(adapt(network(), TinyTL(norm=norm)).eval()(images))
    assert torch.equal(*outputs)


@pytest.mark.parametrize(
    "method",
    [
        FullFineTune(),
        FullFineTune() + ActivationPruning(),
        TinyTL(lite_residual=False),
        TinyTL(),  # with its modules, as in the paper
    ],
    ids=str,
)
def test_kits(method, tmp_path: Path) -> None:
    """`compile` itself compares every tensor with PyTorch for five steps."""
    kit = compile(adapt(network(), method), tmp_path / "kit", batch=1, size=32)
    assert not any("running" in name for name in kit.state())


def test_activation_pruning_drops_inputs_of_standardized_kernels() -> None:
    layers = anatomy(network()).layers
    adapted = adapt(network(), FullFineTune() + ActivationPruning(0.7))
    assert layers_of(adapted, PrunedStandardizedConv2d) == {layer.conv for layer in layers[1:]}
    whole = account(adapt(network(), FullFineTune()), batch=2, size=32).kept_bytes
    assert account(adapted, batch=2, size=32).kept_bytes < 0.7 * whole
