"""Activations are traced as arithmetic, apart from those of our own networks; stand-ins."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from pocketune.compiler.capture.operators import PlainOperators, decompositions
from pocketune.compiler.capture.tracer import trace
from pocketune.compiler.lower.context import RULES

from ..lowering import leaf

aten = torch.ops.aten


def targets(activation: torch.nn.Module) -> set[str]:
    """Operators of an activation and its derivative."""

    def step(x: Tensor, g: Tensor) -> list[Tensor]:
        y = activation(x)
        return [y, *torch.autograd.grad(y, [x], g)]

    inputs = leaf(2, 4), leaf(2, 4, seed=1, grad=False)
    nodes = trace(step, *inputs, decompositions=decompositions()).nodes
    return {str(node.target) for node in nodes if node.op == "call_function"}


@pytest.mark.parametrize("activation", [F.mish, F.elu, F.celu, F.softplus])
def test_smooth_activations_become_arithmetic(activation: torch.nn.Module) -> None:
    name = activation.__name__
    assert not {f"aten.{name}.default", f"aten.{name}_backward.default"} & targets(activation)


@pytest.mark.parametrize(
    "activation",
    [F.relu, F.relu6, F.hardswish, F.hardsigmoid, torch.sigmoid, torch.tanh, F.gelu, F.silu],
)
def test_activations_of_our_networks_stay_one_operator(activation: torch.nn.Module) -> None:
    name = {"relu6": "hardtanh"}.get(activation.__name__, activation.__name__)
    assert f"aten.{name}.default" in targets(activation)


def test_only_nearest_resizing_has_both_a_decomposition_and_a_rule() -> None:
    """It is decomposed for whole factors; the rule is for all others."""
    both = {
        aten.upsample_nearest2d.default,
        aten.upsample_nearest2d_backward.default,
        aten._upsample_nearest_exact2d.default,
        aten._upsample_nearest_exact2d_backward.default,
    }
    assert decompositions().keys() & RULES.keys() == both


MAPS, ROW = torch.arange(32.0).view(1, 2, 4, 4), torch.arange(8.0).view(1, 2, 4)
WEIGHT, INDEX = torch.arange(12.0).view(3, 2, 2), torch.tensor([1, 0])


@pytest.mark.parametrize(
    "call",
    [
        lambda: F.adaptive_avg_pool1d(input=ROW, output_size=1),
        lambda: F.adaptive_avg_pool2d(input=MAPS, output_size=1),
        lambda: F.adaptive_max_pool2d(input=MAPS, output_size=2),
        lambda: F.conv1d(input=ROW, weight=WEIGHT),
        lambda: F.embedding(input=INDEX, weight=ROW[0]),
        lambda: F.instance_norm(input=MAPS),
        lambda: F.interpolate(input=ROW, size=3, mode="linear", align_corners=True),
        lambda: F.pad(input=ROW, pad=(1, 1), mode="circular"),
        lambda: ROW.unfold(dimension=2, size=2, step=1),
    ],
)
def test_stand_ins_take_the_names_of_the_arguments(call: Callable[[], Tensor]) -> None:
    with PlainOperators():
        found = call()
    torch.testing.assert_close(found, call())
