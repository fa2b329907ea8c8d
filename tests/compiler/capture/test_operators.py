"""Activations are traced as arithmetic, apart from those of our own networks."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from pocketune.compiler.capture.operators import decompositions
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
