"""FLOPs by operator against figures worked out by hand."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from pocketune.accounting import OperatorFlops, account, register_flops
from pocketune.accounting.flops import _rules, operator_flops
from pocketune.errors import PocketuneError

aten = torch.ops.aten


def convolution_work(network: nn.Module, path: str, **options: int) -> tuple[int, int]:
    layer = next(
        cost for cost in account(network, **options, loss=Tensor.mean).layers if cost.name == path
    )
    return layer.flops.forward_macs, layer.flops.backward_macs


@settings(max_examples=20)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.sampled_from([1, 3]))
def test_a_convolution_counts_each_product(batch: int, outputs: int, groups: int, kernel: int):
    x = torch.zeros(batch, 2 * groups, 5, 4)
    weight = torch.zeros(outputs * groups, 2, kernel, kernel)
    arguments = (x, weight, None, [1, 1], [kernel // 2] * 2, [1, 1], False, [0, 0], groups)
    result = aten.convolution.default(*arguments)
    macs = batch * 5 * 4 * outputs * groups * 2 * kernel**2
    assert operator_flops(aten.convolution.default, arguments, result) == (2 * macs, macs)


def test_a_depthwise_weight_gradient_costs_what_the_output_costs():
    network = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3, padding=1, groups=8))
    forward, backward = convolution_work(network, "1", batch=2, size=6)
    assert forward == 2 * 6 * 6 * 8 * 9
    assert backward == 2 * forward


def test_only_gradients_that_are_computed_count():
    network = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3, bias=False))
    network[1].weight.requires_grad_(False)
    forward, backward = convolution_work(network, "1", batch=2, size=6)
    assert backward == forward  # that of its input
    _, first = convolution_work(network, "0", batch=2, size=6)
    assert first == 2 * 6 * 6 * 8 * 3  # that of its weight; images need none


def test_a_linear_layer():
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 5))
    layer = next(c for c in account(network, batch=4, size=2).layers if c.name == "1")
    assert layer.flops.forward == 2 * 4 * 12 * 5 + 4 * 5
    assert layer.flops.backward_macs == 4 * 12 * 5
    assert layer.flops.optimizer == 10 * (12 * 5 + 5)


MAP = torch.zeros(1, 1, 4, 5)


@pytest.mark.parametrize(
    ("operator", "arguments", "flops"),
    [
        (aten.add.Tensor, (torch.zeros(2, 3), torch.zeros(2, 3)), 6),
        (aten.add_.Tensor, (torch.zeros(2, 3), torch.zeros(2, 3)), 6),
        (aten.relu.default, (torch.zeros(5),), 5),
        (aten.sum.default, (torch.zeros(4, 5),), 20),
        (aten.view.default, (torch.zeros(4, 5), [20]), 0),
        (aten.clone.default, (torch.zeros(4, 5),), 0),
        (aten.gt.Scalar, (torch.zeros(4, 5), 0), 0),
        (aten._softmax.default, (torch.zeros(4, 5), 1, False), 80),
        (aten.reflection_pad2d.default, (MAP, [1, 1, 1, 1]), 0),
        (aten.reflection_pad2d_backward.default, (torch.zeros(1, 1, 6, 7), MAP, [1] * 4), 42),
        (aten.replication_pad2d_backward.default, (torch.zeros(1, 1, 6, 7), MAP, [1] * 4), 42),
        (aten.softshrink_backward.default, (torch.zeros(4, 5), torch.zeros(4, 5), 0.5), 20),
    ],
)
def test_other_operators(operator, arguments, flops):
    assert operator_flops(operator, arguments, operator(*arguments)) == (flops, 0)


def test_what_has_no_rule_is_named_and_can_be_given_one():
    x = torch.zeros(4, 4)
    arguments = (x,)
    result = aten.linalg_inv_ex.default(x + torch.eye(4))
    with pytest.raises(PocketuneError, match=r"operator aten\.linalg_inv_ex has no rule"):
        operator_flops(aten.linalg_inv_ex.default, arguments, result)
    register_flops("aten.linalg_inv_ex")(lambda args, result: OperatorFlops(2 * args[0].numel(), 0))
    try:
        assert operator_flops(aten.linalg_inv_ex.default, arguments, result) == (32, 0)
    finally:
        del _rules["aten.linalg_inv_ex"]


def test_an_operator_has_one_rule():
    with pytest.raises(ValueError, match=r"two rules for aten\.convolution"):
        register_flops("aten.none", "aten.convolution")(lambda args, result: OperatorFlops(0, 0))
    assert "aten.none" not in _rules
