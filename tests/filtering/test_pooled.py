"""Maps whose gradient stays in patches between two filtered convolutions."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from pocketune.errors import PocketuneError
from pocketune.filtering import (
    SLOPES,
    FilteredConv2d,
    PooledActivation,
    PooledBatchNorm2d,
    PooledMap,
)
from pocketune.filtering.pooled import slope_between, slope_nonnegative

from ..layers.kept import kept_tensors


class Link(nn.Module):
    """Filtered convolution, frozen norm whose shift is trained, activation, another convolution."""

    def __init__(
        self, activation: nn.Module | None, patch: int, alignment: str, first: dict, second: dict
    ) -> None:
        super().__init__()
        filtered = {"patch": patch, "alignment": alignment}
        self.first = FilteredConv2d(4, 6, **first, **filtered)
        self.norm = PooledBatchNorm2d(6)
        nn.init.uniform_(self.norm.weight, -1, 2)
        nn.init.normal_(self.norm.bias)
        self.norm.weight.requires_grad_(False)
        self.activation = nn.Identity() if activation is None else PooledActivation(activation)
        self.second = FilteredConv2d(6, 6, **second, **filtered)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.second(self.activation(self.norm(self.first(x))))
        return y

    def gradients(self, x: Tensor, *, pooled: bool) -> list[Tensor]:
        """Output, and gradients of the input and of everything that is trained."""
        self.first.passes_pooled = pooled
        trained = [p for p in self.parameters() if p.requires_grad]
        y = self(x)
        g = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=y.dtype)
        return [y, *torch.autograd.grad(y, [x, *trained], g)]


def shape(kernel: int, stride: int, dilation: int, groups: int) -> dict:
    padding = dilation * (kernel // 2)
    return {
        "kernel_size": kernel,
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
    }


@st.composite
def links(draw: st.DrawFn) -> Link:
    alignment = draw(st.sampled_from(["natural", "paper", "reference"]))
    stride = 1 if alignment == "reference" else draw(st.integers(1, 3))
    kernels = st.sampled_from([1, 3, 5])
    activation = draw(st.sampled_from([None, *SLOPES]))
    first = shape(draw(kernels), draw(st.integers(1, 2)), 1, draw(st.sampled_from([1, 2])))
    first["padding"] = draw(st.integers(0, 3))
    dilation = draw(st.sampled_from([1, 2, 6]))
    second = shape(draw(kernels), stride, dilation, draw(st.sampled_from([1, 3, 6])))
    kind = None if activation is None else activation()
    return Link(kind, draw(st.sampled_from([1, 2, 3, 4, 7, 17])), alignment, first, second)


@settings(max_examples=60)
@given(link=links(), height=st.integers(5, 20), width=st.integers(5, 20), batch=st.integers(1, 3))
def test_gradients_are_those_of_whole_maps(link: Link, height: int, width: int, batch: int) -> None:
    link = link.double()
    x = torch.randn(batch, 4, height, width, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(link.gradients(x, pooled=True), link.gradients(x, pooled=False))


@pytest.mark.parametrize(("patch", "bytes_a_patch"), [(2, 1), (4, 1), (15, 1), (16, 4)])
def test_keeps_a_count_for_each_patch(patch: int, bytes_a_patch: int) -> None:
    """And the patch sums of both convolutions, and the taps of the second; no map."""
    link = Link(nn.ReLU6(), patch, "natural", shape(3, 1, 1, 1), shape(3, 1, 1, 1))
    link.first.passes_pooled = True
    tensors = kept_tensors(link, torch.randn(2, 4, 32, 32))
    kept = {t.data_ptr(): t for t in tensors if t.dim() == 4}  # not the norm's scales
    patches = 2 * (-(-32 // patch)) ** 2
    scales = [tensor for tensor in kept.values() if tensor.shape[0] == 1]
    assert sum(tensor.nbytes for tensor in scales) == 4 * 6
    assert sum(tensor.nbytes for tensor in kept.values()) - 4 * 6 == (
        4 * patches * (4 + 6) + bytes_a_patch * patches * 6 + 4 * 6 * 6
    )


def test_returns_tensors_where_nothing_is_recorded() -> None:
    link = Link(nn.ReLU(), 2, "natural", shape(3, 1, 1, 1), shape(1, 1, 1, 1))
    link.first.passes_pooled = True
    x = torch.randn(1, 4, 6, 6)
    assert isinstance(link.first(x), PooledMap)
    with torch.no_grad():
        assert isinstance(link.first(x), Tensor)
        torch.testing.assert_close(link(x), link.second(link.activation(link.norm(link.first(x)))))


def pooled_map(**changes: object) -> PooledMap:
    conv = FilteredConv2d(3, 4, 1, **changes)
    conv.passes_pooled = True
    pooled = conv(torch.randn(1, 3, 6, 6))
    assert isinstance(pooled, PooledMap)
    return pooled


def test_sums_add_up_the_gradients() -> None:
    """Two convolutions, added and read by a third, and a frozen map beside them."""
    torch.manual_seed(0)
    a, b, c = (FilteredConv2d(4, 4, 3, padding=1).double() for _ in range(3))
    x = torch.randn(2, 4, 7, 6, dtype=torch.float64)
    frozen = torch.randn(2, 4, 7, 6, dtype=torch.float64)
    wanted = [a.weight, b.weight, a.bias]
    expected = torch.autograd.grad(c(frozen + (a(x) + b(x))).square().sum(), wanted)
    a.passes_pooled = b.passes_pooled = True
    found = torch.autograd.grad(c(frozen + (a(x) + b(x))).square().sum(), wanted)
    torch.testing.assert_close(found, expected)


def test_refuses_what_would_need_the_gradient_of_every_element() -> None:
    activated = pooled_map().activated(nn.ReLU())
    with pytest.raises(PocketuneError, match="an activation after an activation"):
        activated.activated(nn.ReLU())
    with pytest.raises(PocketuneError, match="a norm after an activation"):
        PooledBatchNorm2d(4).requires_grad_(False)(activated)
    with pytest.raises(PocketuneError, match="a sum after an activation"):
        pooled_map() + activated
    with pytest.raises(PocketuneError, match="cannot be added to a tensor that requires a grad"):
        pooled_map() + torch.zeros(1, 4, 6, 6, requires_grad=True)
    with pytest.raises(PocketuneError, match="different patches cannot be added: Patches"):
        pooled_map(patch=2) + pooled_map(patch=3)


def test_a_norm_whose_weight_is_unfrozen_is_refused() -> None:
    """The carrier holds no values to compute the gradient of the weight from."""
    norm = PooledBatchNorm2d(4)
    with pytest.raises(PocketuneError, match=r"PooledBatchNorm2d\(4, eps=1e-05\) requires a grad"):
        norm(pooled_map())
    norm.weight.requires_grad_(False)
    assert isinstance(norm(pooled_map()), PooledMap)


def test_a_norm_keeps_nothing_of_a_pooled_map() -> None:
    norm = PooledBatchNorm2d(4)
    norm.weight.requires_grad_(False)
    pooled = pooled_map()
    kept = kept_tensors(lambda: norm(pooled))
    assert all(tensor.numel() <= 4 for tensor in kept)


def test_a_layer_that_pads_takes_no_pooled_map() -> None:
    for options in ({"same_padding": True}, {"padding": "same"}):
        conv = FilteredConv2d(4, 4, 3, **options)
        with pytest.raises(PocketuneError, match=r"FilteredConv2d.* cannot pad a pooled map"):
            conv(pooled_map())


VALUES = [-7.0, -1e-45, -0.0, 0.0, 1e-45, 0.5, 5.999, 6.0, 6.001]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("low", "high"), [(0.0, 6.0), (0.0, torch.inf), (-torch.inf, 0.0)])
def test_between(dtype: torch.dtype, low: float, high: float) -> None:
    x = torch.tensor(VALUES, dtype=dtype)
    assert torch.equal(slope_between(x, low, high), ((x > low) & (x < high)).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_nonnegative(dtype: torch.dtype) -> None:
    x = torch.tensor(VALUES, dtype=dtype)
    assert torch.equal(slope_nonnegative(x), (x >= 0).to(dtype))


def test_keeps_the_memory_format() -> None:
    x = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    for slope in (slope_between(x, 0.0, 6.0), slope_nonnegative(x)):
        assert slope.is_contiguous(memory_format=torch.channels_last)
