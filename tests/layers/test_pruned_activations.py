"""Pruned layers against plain autograd of the masked network, in float64."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from pocketune.errors import PocketuneError
from pocketune.layers import PrunedBatchNorm2d, PrunedConv2d, PrunedStandardizedConv2d
from pocketune.layers.pruned_activations import estimate_dimensions, ternary
from pocketune.layers.survivors import drop_small, survivor_count, threshold
from pocketune.layers.weight_standardization import standardize

from .kept import kept_tensors

FORMATS = pytest.mark.parametrize(
    "memory_format", [torch.contiguous_format, torch.channels_last], ids=["plain", "last"]
)
RATIOS = pytest.mark.parametrize("ratio", [0.0, 0.3, 0.9])
SHAPE = (3, 4, 7, 9)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def images(memory_format: torch.memory_format = torch.contiguous_format) -> Tensor:
    x = torch.randn(SHAPE, dtype=torch.float64).contiguous(memory_format=memory_format)
    return x.requires_grad_()


def convolution(ratio: float, *, same: bool = False, forward: bool = True) -> PrunedConv2d:
    padding = 0 if same else 1
    conv = PrunedConv2d(
        4, 6, 3, 2, padding, groups=2, ratio=ratio, forward=forward, same_padding=same
    )
    return conv.double()


def norm(ratio: float, *, forward: bool = True, rectified: bool = False) -> PrunedBatchNorm2d:
    made = PrunedBatchNorm2d(4, ratio=ratio, forward=forward, rectified=rectified).double()
    nn.init.normal_(made.weight)
    nn.init.normal_(made.bias)
    return made


def mask(x: Tensor, ratio: float) -> Tensor:
    count = survivor_count(x[0].numel(), ratio)
    return x.abs() > threshold(x, count).view(-1, 1, 1, 1)


def plain_convolution(conv: PrunedConv2d, x: Tensor) -> Tensor:
    padded = functional.pad(x, conv.pads(x))
    return functional.conv2d(padded, conv.weight, conv.bias, conv.stride, conv.padding, groups=2)


def gradients(y: Tensor, layer: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(y, [x, *layer.parameters()], upstream(y))


def upstream(y: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(y.shape, dtype=torch.float64, generator=generator).to(y.dtype)


@RATIOS
@FORMATS
@pytest.mark.parametrize("same", [False, True])
def test_convolution(ratio: float, memory_format: torch.memory_format, same: bool) -> None:
    conv, x = convolution(ratio, same=same), images(memory_format)
    y, expected = conv(x), plain_convolution(conv, x * mask(x, ratio))
    torch.testing.assert_close(y, expected)
    found = gradients(y, conv, x)
    torch.testing.assert_close(found, gradients(expected, conv, x))
    assert found[0].is_contiguous(memory_format=memory_format)


@pytest.mark.parametrize("forward", [True, False])
def test_a_convolution_with_standardized_filters(forward: bool) -> None:
    conv = PrunedStandardizedConv2d(4, 6, 3, ratio=0.6, forward=forward).double()
    x = images()
    kept = x * mask(x, 0.6)
    y = conv(x)
    expected = functional.conv2d(kept, standardize(conv.weight), conv.bias)
    whole = functional.conv2d(x, standardize(conv.weight), conv.bias)
    torch.testing.assert_close(y, expected if forward else whole)
    of_x, *others = gradients(y, conv, x)
    _, *wanted = gradients(expected, conv, x)
    torch.testing.assert_close(others, wanted)
    (of_whole,) = torch.autograd.grad(whole, x, upstream(whole))
    torch.testing.assert_close(of_x, of_whole * mask(x, 0.6) if forward else of_whole)


def output_mask(y: Tensor, ratio: float, *, rectified: bool) -> Tensor:
    return mask(functional.relu(y) if rectified else y, ratio)


@RATIOS
@FORMATS
@pytest.mark.parametrize("rectified", [False, True])
def test_norm(ratio: float, memory_format: torch.memory_format, rectified: bool) -> None:
    """Plain autograd of the masked norm; the gradient of the input is that of its survivors."""
    ours, x = norm(ratio, rectified=rectified), images(memory_format)
    plain = copy.deepcopy(ours)
    whole = nn.BatchNorm2d.forward(plain, x)
    m = output_mask(whole, ratio, rectified=rectified)
    y, expected = ours(x), whole * m
    torch.testing.assert_close(y, expected)
    found, (of_x, *others) = gradients(y, ours, x), gradients(expected, plain, x)
    torch.testing.assert_close(found, (of_x * m, *others))
    torch.testing.assert_close(dict(ours.named_buffers()), dict(plain.named_buffers()))


@FORMATS
@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize(
    "change",
    [lambda y: functional.relu(y, inplace=True), lambda y: y.add_(upstream(y))],
    ids=["relu", "sum"],
)
def test_an_output_may_be_changed_in_place(change, forward, memory_format) -> None:
    ours, x = norm(0.6, forward=forward), images(memory_format)
    y = ours(x)
    found = gradients(change(y), ours, x)
    expected = gradients(change(ours(x).clone()), ours, x)
    torch.testing.assert_close(found, expected)


def test_only_the_backward_pass_of_a_convolution() -> None:
    """The output and the input's gradient are exact; the kernel's is of the pruned input."""
    conv, x = convolution(0.6, forward=False), images()
    y, exact, pruned = conv(x), plain_convolution(conv, x), plain_convolution(conv, drop(x, 0.6))
    torch.testing.assert_close(y, exact)
    found, whole, part = (gradients(each, conv, x) for each in (y, exact, pruned))
    torch.testing.assert_close(found, (whole[0], part[1], whole[2]))


def test_only_the_backward_pass_of_a_norm() -> None:
    """Output and statistics are exact; in the gradients, what was dropped is as the mean."""
    ours, x = norm(0.6, forward=False), images()
    plain = copy.deepcopy(ours)
    y, exact = ours(x), nn.BatchNorm2d.forward(plain, x)
    torch.testing.assert_close(y, exact)
    torch.testing.assert_close(dict(ours.named_buffers()), dict(plain.named_buffers()))
    found, whole = gradients(y, ours, x), gradients(exact, plain, x)
    mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
    centered = (x - mean.view(1, -1, 1, 1)) * mask(y, 0.6)
    of_scale = (upstream(y) * centered).sum((0, 2, 3)) * (variance + ours.eps).rsqrt()
    torch.testing.assert_close(found[1], of_scale)
    torch.testing.assert_close(found[2], whole[2])
    assert not torch.equal(found[1], whole[1])


def drop(x: Tensor, ratio: float) -> Tensor:
    return drop_small(x, survivor_count(x[0].numel(), ratio))


@pytest.mark.parametrize("layer", [convolution(0.7), norm(0.7)], ids=["convolution", "norm"])
def test_keeps_survivors_and_one_bit_an_element(layer: nn.Module) -> None:
    x = images()
    kept = [t for t in kept_tensors(layer, x) if all(t is not p for p in layer.parameters())]
    own = {p.data_ptr() for p in layer.parameters()}
    total = sum(t.nbytes for t in kept if t.data_ptr() not in own)
    statistics = 8 * 4 if isinstance(layer, nn.BatchNorm2d) else 0
    count = survivor_count(x[0].numel(), 0.7)
    assert total == 8 * len(x) * count + (x.numel() + 7) // 8 + statistics


@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize("make", [convolution, norm], ids=["convolution", "norm"])
def test_in_evaluation(make, forward: bool) -> None:
    layer, x = make(0.6, forward=forward).eval(), images()
    if isinstance(layer, PrunedConv2d):
        expected = plain_convolution(layer, drop(x, 0.6) if forward else x)
    else:
        expected = nn.BatchNorm2d.forward(layer, x)
        expected = drop(expected, 0.6) if forward else expected
    torch.testing.assert_close(layer(x), expected)


def estimating() -> PrunedConv2d:
    return PrunedConv2d(16, 6, 3, padding=1, bias=False, ratio=0.7, dimensions=60).double()


def estimated(conv: PrunedConv2d, x: Tensor) -> Tensor:
    """Windows of the input and kernels, both projected, one product for each output."""
    matrix = ternary(60, 16, 3, 3).double().flatten(1)
    windows = functional.unfold(x, 3, padding=1)
    products = (matrix @ conv.weight.flatten(1).t()).t() @ (matrix @ windows) / 60
    return products.view(len(x), 6, *x.shape[2:])


@pytest.mark.parametrize("rectified", [False, True])
def test_a_norm_that_selects_by_an_estimate(rectified: bool) -> None:
    conv, x = estimating(), torch.randn(3, 16, 5, 7, dtype=torch.float64).requires_grad_()
    reader = PrunedBatchNorm2d(6, ratio=0.7, rectified=rectified).double()
    conv.estimate_for(reader)
    y = reader(conv(x))

    middle = functional.conv2d(drop(x, 0.7), conv.weight, padding=1).detach()
    mean, variance = middle.mean((0, 2, 3)), middle.var((0, 2, 3), unbiased=False)
    estimate = functional.batch_norm(estimated(conv, x), mean, variance)
    whole = functional.batch_norm(middle, None, None, training=True)
    if rectified:
        estimate = functional.relu(estimate)
    first = estimate[0].abs().flatten().sort(descending=True).values[survivor_count(210, 0.7)]
    chosen = whole * (estimate.abs() > first)
    survives = output_mask(chosen, 0.7, rectified=rectified)
    torch.testing.assert_close(y, chosen * survives)
    dropped = y.eq(0).flatten(1).sum(1)
    assert (dropped >= 147).all()
    assert len(set(dropped.tolist())) > 1  # they share the threshold of the first image
    if not rectified:
        conv.eval(), reader.eval()
        assert reader(conv(x)).eq(0).flatten(1).sum(1).tolist() == [147] * 3


def test_an_estimate_is_right_on_average() -> None:
    """The mean over matrices is the product itself; here over the windows of large maps."""
    conv, x = estimating(), torch.randn(4, 16, 24, 24, dtype=torch.float64)
    y, estimate = functional.conv2d(x, conv.weight, padding=1), estimated(conv, x)
    torch.testing.assert_close((y * estimate).mean() / y.square().mean(), one(), rtol=0, atol=0.1)
    both = torch.stack([y.flatten(), estimate.flatten()])
    assert torch.corrcoef(both)[0, 1] > 0.4  # of random kernels: there are 60 for 144 dimensions


def one() -> Tensor:
    return torch.ones((), dtype=torch.float64)


@pytest.mark.parametrize(
    ("filters", "epsilon", "dimensions"), [(128, 0.5, 232), (128, 0.3, 539), (128, 0.9, 119)]
)
def test_dimensions_of_an_estimate(filters: int, epsilon: float, dimensions: int) -> None:
    assert estimate_dimensions(filters, epsilon) == dimensions


def test_the_random_matrix_has_two_thirds_zeros() -> None:
    matrix = ternary(100, 10, 3, 3)
    torch.testing.assert_close(matrix.unique(), torch.tensor([-(3**0.5), 0.0, 3**0.5]))
    assert matrix.eq(0).double().mean().item() == pytest.approx(2 / 3, abs=0.02)
    assert matrix.square().mean().item() == pytest.approx(1, abs=0.05)


def test_a_single_image_without_a_batch() -> None:
    conv, x = convolution(0.5), images()[0]
    torch.testing.assert_close(conv(x), conv(x[None])[0])


def test_second_derivatives_are_refused() -> None:
    x = images()
    y = convolution(0.5)(x).square().sum()
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    with pytest.raises(PocketuneError, match="no second derivatives"):
        first.sum().backward()


def test_autocast() -> None:
    conv, x = convolution(0.5).float(), images().detach().float().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        y = conv(x)
    found = gradients(y, conv, x)
    exact = gradients(convolution_in_float(conv, x), conv, x)
    for ours, expected in zip(found, exact, strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours, expected, rtol=0.05, atol=0.1)


def convolution_in_float(conv: PrunedConv2d, x: Tensor) -> Tensor:
    return plain_convolution(conv, x * mask(x, conv.ratio))


def test_a_norm_without_statistics_is_refused() -> None:
    with pytest.raises(PocketuneError, match="cannot be pruned: it needs a weight, a bias"):
        PrunedBatchNorm2d.from_batch_norm(nn.BatchNorm2d(4, affine=False), ratio=0.5, forward=True)


def test_a_norm_that_averages_its_statistics() -> None:
    plain = nn.BatchNorm2d(4, momentum=None).double()
    ours = PrunedBatchNorm2d.from_batch_norm(copy.deepcopy(plain), ratio=0.5, forward=False)
    for _ in range(2):
        x = images()
        ours(x)
        plain(x)
    torch.testing.assert_close(ours.running_var, plain.running_var)


@pytest.mark.parametrize("training", [True, False])
@FORMATS
@RATIOS
def test_no_images(ratio: float, memory_format: torch.memory_format, training: bool) -> None:
    none = images(memory_format)[:0]
    conv = convolution(ratio).train(training)
    y = conv(none)
    assert y.shape == (0, 6, 4, 5)
    y.sum().backward()
    assert conv.weight.grad.count_nonzero() == 0
    assert norm(ratio).eval()(none).shape == none.shape
