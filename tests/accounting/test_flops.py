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
INDEX = torch.tensor([0, 1])


@pytest.mark.parametrize(
    ("operator", "arguments", "flops"),
    [
        (aten.add.Tensor, (torch.zeros(2, 3), torch.zeros(2, 3)), 6),
        (aten.add_.Tensor, (torch.zeros(2, 3), torch.zeros(2, 3)), 6),
        (aten.relu.default, (torch.zeros(5),), 5),
        (aten.sum.default, (torch.zeros(4, 5),), 20),
        (aten.topk.default, (torch.zeros(4, 5), 2), 20),
        (aten.sort.default, (torch.zeros(4, 5),), 20),
        (aten._upsample_bilinear2d_aa.default, (MAP, [8, 10], False), 7 * 80),
        (aten.upsample_linear1d.default, (MAP[0], [10], False), 3 * 40),
        (aten.upsample_nearest1d.default, (MAP[0], [10]), 0),
        (
            aten._upsample_bilinear2d_aa_backward.default,
            (torch.zeros(1, 1, 8, 10), [8, 10], [1, 1, 4, 5], False),
            7 * 80,
        ),
        (aten.view.default, (torch.zeros(4, 5), [20]), 0),
        (aten.clone.default, (torch.zeros(4, 5),), 0),
        (aten.gt.Scalar, (torch.zeros(4, 5), 0), 0),
        (aten._softmax.default, (torch.zeros(4, 5), 1, False), 80),
        (aten._safe_softmax.default, (torch.zeros(4, 5), 1), 80),  # of attention with a mask
        (aten.reflection_pad2d.default, (MAP, [1, 1, 1, 1]), 0),
        (aten.reflection_pad2d_backward.default, (torch.zeros(1, 1, 6, 7), MAP, [1] * 4), 42),
        (aten.replication_pad2d_backward.default, (torch.zeros(1, 1, 6, 7), MAP, [1] * 4), 42),
        (aten.unfold_backward.default, (torch.zeros(1, 3, 5, 2), [1, 4, 5], 1, 2, 1), 30),
        (aten._upsample_nearest_exact2d.default, (MAP, [8, 10]), 0),
        (aten.index_add.default, (torch.zeros(4, 5), 0, INDEX, torch.zeros(2, 5)), 10),
        (aten.scatter_add.default, (torch.zeros(5), 0, INDEX, torch.zeros(2)), 2),
        (aten.col2im.default, (torch.zeros(1, 4, 6), [3, 4], [2, 2], [1, 1], [0, 0], [1, 1]), 24),
        (aten.embedding_dense_backward.default, (torch.zeros(2, 5), INDEX, 4, -1, False), 10),
        (aten._weight_norm_interface.default, (torch.ones(4, 5), torch.ones(4, 1)), 60),
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


def counted(operator, *arguments) -> OperatorFlops:
    return operator_flops(operator, arguments, operator(*arguments))


X = torch.ones(2, 4, 6, 6)
ROW = torch.ones(4)
ELEMENTS = X.numel()


class TestProducts:
    """A multiply-accumulate is two FLOPs; sums of biases come on top."""

    @pytest.mark.parametrize("bias", [None, ROW])
    def test_a_transposed_convolution_counts_at_its_input(self, bias: Tensor | None) -> None:
        weight = torch.ones(4, 4, 3, 3)  # inputs, outputs / groups
        options = ([2, 2], [1, 1], [1, 1], True, [1, 1], 1)
        macs = ELEMENTS * 4 * 9
        sums = 0 if bias is None else 2 * 4 * 12 * 12
        assert counted(aten.convolution.default, X, weight, bias, *options) == (
            2 * macs + sums,
            macs,
        )

    @pytest.mark.parametrize("transposed", [False, True])
    @pytest.mark.parametrize("wanted", [(1, 0, 0), (0, 1, 0), (1, 1, 0), (0, 0, 1), (1, 1, 1)])
    def test_each_gradient_of_a_convolution_costs_what_its_output_costs(
        self, transposed: bool, wanted: tuple[int, int, int]
    ) -> None:
        weight = torch.ones(4, 2, 3, 3)
        options = ([2, 2], [1, 1], [1, 1], transposed, [1, 1] if transposed else [0, 0], 2)
        output = aten.convolution.default(X, weight, None, *options)
        once = counted(aten.convolution.default, X, weight, None, *options).macs
        mask = [bool(each) for each in wanted]
        arguments = (output, X, weight, [4], *options, mask)
        macs = once * sum(wanted[:2])
        sums = output.numel() * wanted[2]
        assert counted(aten.convolution_backward.default, *arguments) == (2 * macs + sums, macs)

    @given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))
    @settings(max_examples=20)
    def test_matrices(self, m: int, k: int, n: int, batch: int) -> None:
        a, b = torch.ones(m, k), torch.ones(k, n)
        macs = m * k * n
        assert counted(aten.mm.default, a, b) == (2 * macs, macs)
        assert counted(aten.addmm.default, torch.ones(n), a, b) == (2 * macs + m * n, macs)
        a, b, sums = torch.ones(batch, m, k), torch.ones(batch, k, n), torch.ones(batch, m, n)
        assert counted(aten.bmm.default, a, b) == (2 * batch * macs, batch * macs)
        many = (2 * batch * macs + batch * m * n, batch * macs)
        assert counted(aten.baddbmm.default, sums, a, b) == many


class TestNorms:
    @pytest.mark.parametrize(("training", "forward", "backward"), [(True, 6, 9), (False, 2, 2)])
    def test_batch_norm(self, training: bool, forward: int, backward: int) -> None:
        statistics = (torch.zeros(4), torch.ones(4))
        arguments = (X, ROW, ROW, *statistics, training, 0.1, 1e-5)
        operator = aten.native_batch_norm.default
        assert counted(operator, *arguments) == (forward * ELEMENTS, 0)
        _, mean, deviation = operator(*arguments)
        back = (X, X, ROW, *statistics, mean, deviation, training, 1e-5, [True] * 3)
        assert counted(aten.native_batch_norm_backward.default, *back) == (backward * ELEMENTS, 0)

    def test_group_norm(self) -> None:
        arguments = (X, ROW, ROW, 2, 4, 36, 2, 1e-5)
        assert counted(aten.native_group_norm.default, *arguments) == (6 * ELEMENTS, 0)
        _, mean, deviation = aten.native_group_norm.default(*arguments)
        back = (X, X, mean, deviation, ROW, 2, 4, 36, 2, [True] * 3)
        assert counted(aten.native_group_norm_backward.default, *back) == (9 * ELEMENTS, 0)

    def test_layer_norm(self) -> None:
        row = torch.ones(6)
        arguments = (X, [6], row, row, 1e-5)
        assert counted(aten.native_layer_norm.default, *arguments) == (6 * ELEMENTS, 0)
        _, mean, deviation = aten.native_layer_norm.default(*arguments)
        back = (X, X, [6], mean, deviation, row, row, [True] * 3)
        assert counted(aten.native_layer_norm_backward.default, *back) == (9 * ELEMENTS, 0)


class TestPooling:
    """Output elements times window, or elements of the input if they are more."""

    @pytest.mark.parametrize(
        ("window", "stride", "outputs"), [([2, 2], [2, 2], 9), ([3], [1], 16), ([1, 1], [3, 3], 4)]
    )
    def test_windows(self, window: list[int], stride: list[int], outputs: int) -> None:
        area = window[0] * window[-1]
        flops = max(8 * outputs * area, ELEMENTS)
        assert counted(aten.max_pool2d_with_indices.default, X, window, stride) == (flops, 0)
        assert counted(aten.avg_pool2d.default, X, window, stride) == (flops, 0)

    def test_gradients(self) -> None:
        pooled, places = aten.max_pool2d_with_indices.default(X, [2, 2], [2, 2])
        options = ([2, 2], [2, 2], [0, 0])
        arguments = (pooled, X, *options, [1, 1], False, places)
        operator = aten.max_pool2d_with_indices_backward.default
        assert counted(operator, *arguments) == (pooled.numel(), 0)
        arguments = (pooled, X, *options, False, True, None)
        assert counted(aten.avg_pool2d_backward.default, *arguments) == (ELEMENTS, 0)

    def test_to_a_fixed_size(self) -> None:
        assert counted(aten._adaptive_avg_pool2d.default, X, [2, 2]) == (ELEMENTS, 0)
        gradient = torch.ones(2, 4, 2, 2)
        operator = aten._adaptive_avg_pool2d_backward.default
        assert counted(operator, gradient, X) == (ELEMENTS, 0)

    def test_resizing(self) -> None:
        arguments = (X, [12, 12], False, None, None)
        assert counted(aten.upsample_bilinear2d.default, *arguments) == (7 * 4 * ELEMENTS, 0)
        smaller = (X, [3, 3], False, None, None)
        assert counted(aten.upsample_bilinear2d.default, *smaller) == (7 * ELEMENTS, 0)
        cubic = counted(aten._upsample_bicubic2d_aa.default, X, [12, 12], False)
        assert cubic == (31 * 4 * ELEMENTS, 0)
        assert counted(aten.upsample_nearest2d.default, X, [12, 12]) == (0, 0)
        back = (torch.ones(2, 4, 12, 12), [12, 12], [2, 4, 6, 6])
        assert counted(aten.upsample_nearest2d_backward.default, *back) == (ELEMENTS, 0)


@pytest.mark.parametrize(
    ("operator", "arguments", "flops"),
    [
        (aten.amax.default, (X, [1]), ELEMENTS),
        (aten.max.dim, (X, 1), ELEMENTS),
        (aten.mean.dim, (X, [2, 3]), ELEMENTS),
        (aten.var_mean.correction, (X, [0]), 4 * ELEMENTS),
        (aten._log_softmax.default, (X, 1, False), 4 * ELEMENTS),
        (aten._log_softmax_backward_data.default, (X, X, 1, torch.float32), 4 * ELEMENTS),
        (aten.hardswish.default, (X,), ELEMENTS),
        (aten.hardtanh_backward.default, (X, X, 0.0, 6.0), ELEMENTS),
        (aten.native_dropout.default, (X, 0.5, True), ELEMENTS),
        (aten.eye.default, (3,), 0),
        (aten.bernoulli.p, (X, 0.5), 0),
        (aten.argmax.default, (X, 1), 0),
        (aten.cat.default, ([X, X], 1), 0),
        (aten._to_copy.default, (torch.ones(3, dtype=torch.int8),), 0),
        (aten.mul.Tensor, (torch.ones(2, 1), torch.ones(1, 3)), 6),  # elements of the result
        (aten.add.Tensor, (torch.ones(2, dtype=torch.int64), 1), 0),  # not floats
        (aten.mul_.Scalar, (torch.ones(5), 2.0), 5),
    ],
)
def test_rules_of_the_table(operator, arguments, flops: int) -> None:
    assert counted(operator, *arguments) == (flops, 0)


def test_fused_attention_counts_both_products_and_its_gradient_five() -> None:
    q, k = torch.ones(2, 3, 5, 4), torch.ones(2, 3, 6, 4)
    scores = 2 * 3 * 5 * 6
    fused = aten._scaled_dot_product_flash_attention_for_cpu
    macs = scores * (4 + 4)
    assert counted(fused.default, q, k, k) == (2 * macs + 4 * scores, macs)
    y, v = torch.ones(2, 3, 5, 7), torch.ones(2, 3, 6, 7)
    back = scores * (3 * 4 + 2 * 7)
    rule = _rules["aten._scaled_dot_product_flash_attention_for_cpu_backward"]
    assert rule((y, q, k, v), None) == (2 * back + 8 * scores, back)


def test_adding_at_an_index_counts_what_is_added() -> None:
    index, added = [torch.zeros(12, dtype=torch.int64)], torch.ones(12, 3)
    assert counted(aten.index_put.default, torch.ones(4, 3), index, added, True) == (36, 0)


def test_the_loss_of_classes() -> None:
    labels = torch.tensor([0, 1])
    arguments = (torch.ones(2, 7), labels, None, 1, -100)
    assert counted(aten.nll_loss_forward.default, *arguments) == (2, 0)
    total = aten.nll_loss_forward.default(*arguments)[1]
    back = (torch.ones(()), *arguments, total)
    assert counted(aten.nll_loss_backward.default, *back) == (0, 0)


def test_gradients_by_patches_of_a_filtered_convolution() -> None:
    """One product for each element of the coarse gradient and each weight that it meets."""
    gradient, x = torch.ones(2, 6, 3, 3), torch.ones(2, 4, 3, 3)
    kernel = torch.ones(6, 2)
    macs = gradient.numel() * 2
    of_input = _rules["pocketune.patch_input_gradient"]
    assert of_input((gradient, kernel), x) == (2 * macs, macs)
    of_kernel = _rules["pocketune.patch_kernel_gradient"]
    assert of_kernel((gradient, x, 2), kernel) == (2 * macs, macs)
