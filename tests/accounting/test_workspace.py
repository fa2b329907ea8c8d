"""What kernels allocate for themselves, against the table of the module's docstring."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pocketune.accounting.workspace import workspace_bytes

aten = torch.ops.aten
LAST = torch.channels_last


def meta(*shape: int, last: bool = False) -> Tensor:
    tensor = torch.empty(shape, device="meta")
    return tensor.contiguous(memory_format=LAST) if last else tensor


def forward(x: Tensor, weight: Tensor, y: Tensor) -> int:
    return workspace_bytes(aten.convolution.default, (x, weight), y)


def backward(
    x: Tensor, weight: Tensor, y: Tensor, *, of_input: bool = False, of_weight: bool = False,
    of_bias: bool = False,
) -> int:  # fmt: skip
    wanted = [of_input, of_weight, of_bias]
    arguments = (y, x, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, wanted)
    return workspace_bytes(aten.convolution_backward.default, arguments, None)


X, Y, W = meta(2, 8, 6, 6), meta(2, 16, 6, 6), meta(16, 8, 3, 3)
X_LAST, Y_LAST = meta(2, 8, 6, 6, last=True), meta(2, 16, 6, 6, last=True)
SMALL = meta(2, 16, 3, 3)  # the output with a stride of 2


class TestPlainLayout:
    def test_the_output(self) -> None:
        assert forward(X, W, Y) == Y.nbytes + W.nbytes
        assert forward(X, W, SMALL) == X.nbytes + W.nbytes

    def test_the_gradient_of_the_input(self) -> None:
        assert backward(X, W, Y, of_input=True) == Y.nbytes + W.nbytes

    def test_the_same_with_a_stride(self) -> None:
        needed = max(2 * X.nbytes, X.nbytes + W.nbytes, SMALL.nbytes + W.nbytes)
        assert backward(X, W, SMALL, of_input=True) == needed
        wide = meta(2, 8, 20, 20)
        assert backward(wide, W, meta(2, 16, 10, 10), of_input=True) == 2 * wide.nbytes

    def test_a_strided_depthwise_kernel_is_not_dense(self) -> None:
        x, weight, y = meta(2, 8, 20, 20), meta(8, 1, 3, 3), meta(2, 8, 10, 10)
        assert backward(x, weight, y, of_input=True) == x.nbytes + weight.nbytes

    def test_the_gradient_of_the_weight(self) -> None:
        assert backward(X, W, Y, of_weight=True) == max(X.nbytes + Y.nbytes, W.nbytes)
        large = meta(2, 512, 1, 1)
        weight = meta(512, 512, 3, 3)
        assert backward(large, weight, large, of_weight=True) == weight.nbytes

    @pytest.mark.parametrize("channels", [1, 3, 4])
    def test_photos_are_not_copied(self, channels: int) -> None:
        x, weight, y = meta(2, channels, 20, 20), meta(16, channels, 3, 3), meta(2, 16, 20, 20)
        copied = x.nbytes if channels == 4 else 0
        assert backward(x, weight, y, of_weight=True) == copied + y.nbytes

    @pytest.mark.parametrize("side", [3, 5])
    def test_large_depthwise_weights(self, side: int) -> None:
        x, weight = meta(2, 8, 20, 20), meta(8, 1, side, side)
        needed = 2 * x.nbytes if side == 3 else weight.nbytes
        assert backward(x, weight, x, of_weight=True) == needed


class TestChannelsLast:
    def test_the_output_and_the_gradient_of_the_input(self) -> None:
        weight = W.contiguous(memory_format=LAST)
        assert forward(X_LAST, weight, Y_LAST) == W.nbytes
        assert backward(X_LAST, weight, Y_LAST, of_input=True) == W.nbytes

    def test_the_gradient_of_the_weight(self) -> None:
        weight = W.contiguous(memory_format=LAST)
        assert backward(X_LAST, weight, Y_LAST, of_weight=True) == 2 * W.nbytes

    def test_large_depthwise_weights(self) -> None:
        x, weight = meta(2, 8, 20, 20, last=True), meta(8, 1, 5, 5)
        assert backward(x, weight, x, of_weight=True) == x.nbytes + weight.nbytes

    def test_a_gradient_in_the_other_layout_is_copied(self) -> None:
        weight = W.contiguous(memory_format=LAST)
        assert backward(X_LAST, weight, Y, of_input=True) == W.nbytes + Y.nbytes

    def test_a_weight_decides_the_layout_too(self) -> None:
        weight = W.contiguous(memory_format=LAST)
        assert forward(X, weight, Y_LAST) == W.nbytes + X.nbytes

    def test_one_channel_lies_both_ways_and_decides_nothing(self) -> None:
        x, weight, y = meta(2, 1, 6, 6, last=True), meta(4, 1, 3, 3), meta(2, 4, 6, 6)
        assert forward(x, weight, y) == max(x.nbytes, y.nbytes) + weight.nbytes


class TestGradientsTogether:
    def test_they_are_computed_in_turn(self) -> None:
        of_input = backward(X, W, Y, of_input=True)
        of_weight = backward(X, W, Y, of_weight=True)
        assert backward(X, W, Y, of_input=True, of_weight=True) == max(of_input, of_weight)

    def test_a_bias_computes_the_gradient_of_its_weight_in_vain(self) -> None:
        of_weight = backward(X, W, Y, of_weight=True)
        assert backward(X, W, Y, of_bias=True) == of_weight + W.nbytes
        assert backward(X, W, Y, of_weight=True, of_bias=True) == of_weight

    def test_none(self) -> None:
        assert backward(X, W, Y) == 0


class TestOneByOne:
    """In one thread and with few images PyTorch multiplies matrices instead."""

    @pytest.fixture(params=[1, 2])
    def threads(self, request, monkeypatch) -> int:
        monkeypatch.setattr(torch, "get_num_threads", lambda: request.param)
        return request.param

    @pytest.mark.parametrize("batch", [1, 15, 16])
    def test_takes_the_input_of_one_image(self, threads: int, batch: int) -> None:
        x, weight = meta(batch, 8, 6, 6), meta(8, 8, 1, 1)
        both = forward(x, weight, x), backward(x, weight, x, of_input=True)
        if threads == 1 and batch < 16:
            assert both == (0, x.nbytes // batch)
            assert backward(x, weight, x, of_weight=True) == 0
        else:
            assert both == (x.nbytes + weight.nbytes,) * 2

    def test_grouped_ones_are_convolutions(self, threads: int) -> None:
        x, weight = meta(1, 8, 6, 6), meta(8, 4, 1, 1)
        assert forward(x, weight, x) == x.nbytes + weight.nbytes


def test_other_operators_take_nothing() -> None:
    assert workspace_bytes(aten.relu.default, (X,), X) == 0
    assert workspace_bytes(aten.mm.default, (X, X), X) == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_bytes_are_those_of_the_type(dtype: torch.dtype) -> None:
    x, weight, y = X.to(dtype), W.to(dtype), Y.to(dtype)
    assert forward(x, weight, y) * 4 == forward(X, W, Y) * dtype.itemsize
