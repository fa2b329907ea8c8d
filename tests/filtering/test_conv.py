"""Filtered gradients against the formulas of both alignments, and what is kept for them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from pocketune.errors import PocketuneError
from pocketune.filtering import FilteredConv2d, filter_convolution
from pocketune.filtering.geometry import ALIGNMENTS as RULES
from pocketune.filtering.geometry import convolution_geometry
from pocketune.layers import StandardizedConv2d

from ..layers.kept import kept_tensors
from .filter_formulas import Case, filtered_gradients

ALIGNMENTS = ["natural", "paper", "reference"]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Any convolution whose output has a pixel: dense, grouped, depthwise; strides, dilations."""

    def pair(low: int, high: int) -> tuple[int, int]:
        number = st.integers(low, high)
        return draw(st.one_of(number.map(lambda n: (n, n)), st.tuples(number, number)))

    groups = draw(st.sampled_from([1, 1, 2, 3]))
    inputs = groups * draw(st.integers(1, 3))
    outputs = inputs if draw(st.booleans()) else groups * draw(st.integers(1, 3))
    kernel, dilation = pair(1, 5), pair(1, 5)
    padding = pair(0, 6)
    if draw(st.booleans()):  # the common case: the size stays
        padding = tuple(d * (k // 2) for d, k in zip(dilation, kernel, strict=True))
    extents = [d * (k - 1) + 1 - 2 * p for d, k, p in zip(dilation, kernel, padding, strict=True)]
    size = tuple(draw(st.integers(max(1, extent), max(1, extent) + 12)) for extent in extents)
    return Case(
        alignment=draw(st.sampled_from(ALIGNMENTS)),
        patch=draw(st.integers(1, 8)),
        batch=draw(st.integers(1, 3)),
        groups=groups,
        inputs=inputs,
        outputs=outputs,
        size=size,
        kernel=kernel,
        stride=pair(1, 3),
        padding=padding,
        dilation=dilation,
    )


def layer(case: Case, bias: bool = True, bits: int = 32) -> FilteredConv2d:
    return FilteredConv2d(
        case.inputs,
        case.outputs,
        case.kernel,
        stride=case.stride,
        padding=case.padding,
        dilation=case.dilation,
        groups=case.groups,
        bias=bias,
        patch=case.patch,
        alignment=case.alignment,
        bits=bits,
    )


def tensors(case: Case, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """An input and a gradient of the output."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(case.batch, case.inputs, *case.size, generator=generator, dtype=dtype)
    y_shape = (case.batch, case.outputs, *case.output_size())
    return x.requires_grad_(), torch.randn(y_shape, generator=generator, dtype=dtype)


def assert_formula(case: Case, conv: nn.Module, x: Tensor, g: Tensor, bits: int = 32) -> None:
    """Gradients of a layer are those of the formula, for an input and a gradient of the output."""
    of_input, of_kernel = filtered_gradients(case, x.detach(), conv.weight.detach(), g, bits=bits)
    found = torch.autograd.grad(conv(x), [x, conv.weight, conv.bias], g)
    torch.testing.assert_close(found[0], of_input)
    torch.testing.assert_close(found[1], of_kernel)
    torch.testing.assert_close(found[2], g.sum((0, 2, 3)))


@settings(max_examples=100)
@given(case=cases(), last=st.booleans())
def test_gradients_are_those_of_the_formula(case: Case, last: bool) -> None:
    conv = layer(case).double()
    x, g = tensors(case)
    if last:
        x = x.detach().contiguous(memory_format=torch.channels_last).requires_grad_()
        g = g.contiguous(memory_format=torch.channels_last)
    assert_formula(case, conv, x, g)


@settings(max_examples=60)
@given(case=cases())
def test_gradients_in_8_bits_are_those_of_the_rounded_formula(case: Case) -> None:
    conv = layer(case, bits=8).double()
    x, g = tensors(case)
    assert_formula(case, conv, x, g, bits=8)


@settings(max_examples=30)
@given(case=cases())
def test_output_is_that_of_the_convolution(case: Case) -> None:
    conv = layer(case)
    x, _ = tensors(case, torch.float32)
    expected = functional.conv2d(
        x, conv.weight, conv.bias, case.stride, case.padding, case.dilation, case.groups
    )
    assert torch.equal(conv(x), expected)


DILATED = [
    (12, 3, 4),
    (24, 6, 4),
    (36, 9, 4),
    (12, 5, 2),
    (4, 4, 1),
    (2, 2, 1),
    (4, 3, 1),
    (2, 4, 0),
]


@pytest.mark.parametrize(
    ("alignment", "dilation", "patch", "apart"),
    [  # half of the pairs, each alignment with taps of every distance
        (alignment, *kernel)
        for row, alignment in enumerate(["natural", "paper", "reference"])
        for place, kernel in enumerate(DILATED)
        if (row + place) % 2 == 0 or kernel[2] in (0, 2)
    ],
)
def test_dilated_kernels_as_in_segmentation(
    alignment: str, dilation: int, patch: int, apart: int
) -> None:
    """Atrous pyramids: taps a patch or more apart keep their places, closer ones are added up.

    Most patches do not divide the map's 43 x 50 pixels.
    """
    torch.manual_seed(dilation)
    case = Case(
        alignment,
        patch,
        2,
        1,
        3,
        4,
        (43, 50),
        (3, 3),
        padding=(dilation, dilation),
        dilation=(dilation, dilation),
    )
    conv = layer(case).double()
    places = RULES[alignment](
        convolution_geometry((3, 3), (1, 1), case.padding, case.dilation, case.size), patch
    )
    assert places.dilation == (apart, apart)
    x = torch.randn(2, 3, *case.size, dtype=torch.float64, requires_grad=True)
    g = torch.randn(2, 4, *case.size, dtype=torch.float64)
    conv(x).backward(g)
    of_x, of_kernel = filtered_gradients(case, x.detach(), conv.weight.detach(), g)
    torch.testing.assert_close(x.grad, of_x)
    torch.testing.assert_close(conv.weight.grad, of_kernel)


@pytest.mark.parametrize("alignment", ALIGNMENTS)
def test_patches_of_one_pixel_make_a_1x1_convolution_exact(alignment: str) -> None:
    case = Case(alignment, 1, 2, 1, 3, 4, (5, 6), (1, 1))
    conv = layer(case).double()
    x, g = tensors(case)
    y = functional.conv2d(x, conv.weight, conv.bias)
    exact = torch.autograd.grad(y, [x, conv.weight, conv.bias], g)
    found = torch.autograd.grad(conv(x), [x, conv.weight, conv.bias], g)
    torch.testing.assert_close(found, exact)


def test_paper_is_exact_for_patches_of_equal_gradients_behind_a_1x1_kernel() -> None:
    case = Case("paper", 2, 2, 1, 3, 4, (6, 8), (1, 1))
    conv = layer(case, bias=False).double()
    x, g = tensors(case)
    g = g[:, :, ::2, ::2].repeat_interleave(2, 2).repeat_interleave(2, 3)
    exact = torch.autograd.grad(functional.conv2d(x, conv.weight), [x, conv.weight], g)
    torch.testing.assert_close(torch.autograd.grad(conv(x), [x, conv.weight], g), exact)


def test_a_constant_gradient_far_from_borders_passes_a_strided_kernel_at_natural_scale() -> None:
    """Why `paper` divides by the stride's square, and what `reference` leaves out."""
    exact, natural, paper, reference = map(_middle_of_input_gradient, [None, *ALIGNMENTS])
    torch.testing.assert_close(natural, exact)
    torch.testing.assert_close(paper, exact)
    torch.testing.assert_close(reference, 4 * exact)


def _middle_of_input_gradient(alignment: str | None) -> Tensor:
    """Mean over the middle block of the input's gradient, for a gradient of one everywhere."""
    torch.manual_seed(0)
    conv: nn.Conv2d = nn.Conv2d(2, 3, 3, stride=2, padding=1).double()
    if alignment is not None:
        conv = FilteredConv2d.from_convolution(conv, patch=2, alignment=alignment)
    x = torch.randn(1, 2, 24, 24, dtype=torch.float64, requires_grad=True)
    y = conv(x)
    (gradient,) = torch.autograd.grad(y, x, torch.ones_like(y))
    return gradient[:, :, 8:16, 8:16].mean((2, 3))


@settings(max_examples=40)
@given(
    alignment=st.sampled_from(ALIGNMENTS),
    patch=st.integers(1, 4),
    stride=st.integers(1, 3),
    size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
)
def test_standardized_filters_and_same_padding_are_those_of_the_formula(
    alignment: str, patch: int, stride: int, size: tuple[int, int]
) -> None:
    """The three together: pad, standardize, then filter the gradients of what is computed so."""
    torch.manual_seed(0)
    options = {"stride": stride, "groups": 2, "bias": False, "same_padding": True}
    conv = StandardizedConv2d(4, 6, 3, **options, dtype=torch.float64)
    layer = filter_convolution(conv, patch=patch, alignment=alignment)
    x = torch.randn(2, 4, *size, dtype=torch.float64, requires_grad=True)

    totals = [max((-(-n // stride) - 1) * stride + 3 - n, 0) for n in size]
    (top, bottom), (left, right) = ((n // 2, n - n // 2) for n in totals)
    padded = functional.pad(x.detach(), (left, right, top, bottom))
    std, mean = torch.std_mean(conv.weight, (1, 2, 3), keepdim=True)
    filters = (conv.weight - mean) / (std + 1e-5)
    y = layer(x)
    torch.testing.assert_close(y, functional.conv2d(padded, filters, None, stride, groups=2))

    g = torch.randn_like(y)
    case = Case(
        alignment, patch, 2, 2, 4, 6, tuple(padded.shape[2:]), (3, 3), stride=(stride, stride)
    )
    of_padded, of_filters = filtered_gradients(case, padded, filters.detach(), g)
    of_x = of_padded[:, :, top : top + size[0], left : left + size[1]]
    (of_weight,) = torch.autograd.grad(filters, conv.weight, of_filters)
    found = torch.autograd.grad(y, [x, layer.weight], g)
    torch.testing.assert_close(found, (of_x, of_weight))


# ---- what is kept


@pytest.mark.parametrize("alignment", ALIGNMENTS)
@pytest.mark.parametrize(
    ("patch", "stride", "patches"), [(2, 1, 16), (4, 1, 4), (7, 1, 1), (2, 2, 4), (16, 1, 1)]
)
def test_keeps_patch_sums_and_tap_sums(
    alignment: str, patch: int, stride: int, patches: int
) -> None:
    conv = FilteredConv2d(
        6, 8, 3, stride=stride, padding=1, groups=2, patch=patch, alignment=alignment
    )
    tensors = kept_tensors(conv, torch.randn(5, 6, 7, 7, requires_grad=True))
    assert sum(t.nbytes for t in tensors) == 4 * (5 * 6 * patches + 8 * 3)


def test_keeps_8_bits_a_patch_and_a_scale() -> None:
    tensors = kept_tensors(FilteredConv2d(6, 8, 3, padding=1, bits=8), torch.randn(5, 6, 7, 7))
    assert sum(t.nbytes for t in tensors) == 5 * 6 * 16 + 4


def test_keeps_tap_sums_alone_while_the_kernel_is_frozen() -> None:
    conv = FilteredConv2d(6, 8, 3).requires_grad_(False)
    tensors = kept_tensors(conv, torch.randn(5, 6, 7, 7, requires_grad=True))
    assert sum(t.nbytes for t in tensors) == 4 * 6 * 8


def test_keeps_patch_sums_alone_where_the_input_needs_no_gradient() -> None:
    tensors = kept_tensors(FilteredConv2d(6, 8, 3, padding=1), torch.randn(5, 6, 7, 7))
    assert sum(t.nbytes for t in tensors) == 4 * 5 * 6 * 16


def test_keeps_no_copy_of_a_1x1_kernel() -> None:
    conv = FilteredConv2d(6, 8, 1)
    tensors = kept_tensors(conv, torch.randn(5, 6, 8, 8, requires_grad=True))
    assert [t.data_ptr() == conv.weight.data_ptr() for t in tensors] == [True, False]
    assert tensors[1].nbytes == 4 * 5 * 6 * 16


def test_keeps_nothing_without_gradients() -> None:
    with torch.no_grad():
        assert kept_tensors(FilteredConv2d(6, 8, 3), torch.randn(5, 6, 7, 7)) == []


# ---- as a module


@pytest.mark.parametrize(
    "options",
    [
        {"padding": "same", "dilation": 2},
        {"padding": "valid"},
        {"padding": 2, "padding_mode": "reflect"},
        {"padding": 1, "padding_mode": "circular", "stride": 2},
        {"padding": 1, "groups": 2, "bias": False},
    ],
    ids=str,
)
def test_takes_over_any_convolution(options: dict) -> None:
    conv = nn.Conv2d(4, 6, 3, **options).eval()
    filtered = FilteredConv2d.from_convolution(conv, patch=4)
    x = torch.randn(2, 4, 9, 8)
    assert torch.equal(filtered(x), conv(x))
    assert filtered.weight is conv.weight
    assert filtered.bias is conv.bias
    assert not filtered.training
    assert list(filtered.state_dict()) == list(conv.state_dict())
    filtered(x).sum().backward()
    assert conv.weight.grad is not None


def test_padding_by_other_modes_is_padding_before_the_convolution() -> None:
    torch.manual_seed(0)
    reflected = FilteredConv2d(3, 4, 3, padding=1, padding_mode="reflect").double()
    bare = FilteredConv2d.from_convolution(nn.Conv2d(3, 4, 3).double())
    bare.weight, bare.bias = reflected.weight, reflected.bias
    x = torch.randn(2, 3, 6, 7, dtype=torch.float64, requires_grad=True)
    y = reflected(x)
    g = torch.randn_like(y)
    expected = bare(functional.pad(x, (1, 1, 1, 1), "reflect"))
    torch.testing.assert_close(
        torch.autograd.grad(y, [x, reflected.weight], g),
        torch.autograd.grad(expected, [x, bare.weight], g),
    )


def test_says_what_it_is() -> None:
    assert repr(FilteredConv2d(2, 3, 1, patch=4)) == (
        "FilteredConv2d(2, 3, kernel_size=(1, 1), stride=(1, 1), patch=4, alignment='natural')"
    )
    assert repr(FilteredConv2d(2, 3, 1, bits=8)).endswith("alignment='natural', bits=8)")


@pytest.mark.parametrize("patch", [0, -2, 1.5, True, "2"])
def test_refuses_a_patch_that_is_none(patch: object) -> None:
    with pytest.raises(PocketuneError, match=r"patch=.* must be a whole number of at least 1"):
        FilteredConv2d(2, 3, 1, patch=patch)


def test_refuses_an_unknown_alignment() -> None:
    with pytest.raises(
        PocketuneError, match="alignment='left' must be one of natural, paper, reference"
    ):
        FilteredConv2d(2, 3, 1, alignment="left")


@pytest.mark.parametrize("bits", [16, 0, None, "8"])
def test_refuses_other_bits(bits: object) -> None:
    with pytest.raises(PocketuneError, match=r"bits=.* must be 8 or 32"):
        FilteredConv2d(2, 3, 1, bits=bits)


class OddConv2d(nn.Conv2d):
    """A convolution with something of its own."""


@pytest.mark.parametrize(
    "module",
    [nn.ConvTranspose2d(2, 3, 1), nn.Conv3d(2, 3, 1), nn.Linear(2, 3), OddConv2d(2, 3, 1)],
    ids=lambda module: type(module).__name__,
)
def test_refuses_other_layers_by_name(module: nn.Module) -> None:
    with pytest.raises(PocketuneError, match=f"{type(module).__name__} cannot have filtered"):
        FilteredConv2d.from_convolution(module)
