"""Operators that move, select, sum and combine elements; matrix products; refusals."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from pocketune.errors import PocketuneError

from ..lowering import LAYOUTS, check_function, leaf, lower_function, operators

ONE_MAP: dict[str, Callable[[Tensor], Tensor]] = {
    "flatten": lambda x: x.flatten(1),
    "view": lambda x: x.view(x.shape[0], 2, 2, 4, 5),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "permute": lambda x: x.permute(0, 2, 3, 1),
    "slice channels": lambda x: x[:, 1:3],
    "slice with steps": lambda x: x[:, :, ::2, 1::3],
    "slice from the end": lambda x: x[:, :, -3:-1],
    "pad": lambda x: F.pad(x, (0, 1, 2, 3)),
    "pad with a value": lambda x: F.pad(x, (1, 1), value=-2.0),
    "crop": lambda x: F.pad(x, (-1, 0, 0, -1)),
    "mean of pixels": lambda x: x.mean((2, 3)),
    "mean of flat pixels": lambda x: x.flatten(2).mean(-1),
    "mean of channels": lambda x: x.mean(1, keepdim=True),
    "mean of all but channels": lambda x: x.mean((0, 2, 3)),
    "sum of all but channels": lambda x: x.sum((0, 2, 3), keepdim=True),
    "sum of the last": lambda x: x.sum(-1),
    "mean of all": lambda x: x.mean(None, keepdim=True),
    "mean of no dimensions": lambda x: x.mean([]),
    "sum of all": lambda x: x.sum(None),
    "sum of no dimensions": lambda x: x.sum((), keepdim=True),
    "norm of no dimensions": lambda x: torch.linalg.vector_norm(x, dim=()),
    "expand": lambda x: x.mean((2, 3), keepdim=True).expand(-1, -1, 4, 5),
    "expand in front": lambda x: x.mean((0, 2, 3)).expand(3, 4),
    "repeat": lambda x: x.repeat(1, 2, 1, 3),
    "repeat in front": lambda x: x.repeat(2, 1, 1, 2, 1),
    "cat with itself": lambda x: torch.cat([x, x * 2], 1),
    "cat of rows": lambda x: torch.cat([x[:, :, :1], x], 2),
    "clone": lambda x: x.clone().contiguous(),
}


@LAYOUTS
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("name", ONE_MAP)
def test_of_one_map(name: str, batch: int, rows_max_pixels: int) -> None:
    """Behind a 1x1 convolution, which may leave the map in rows; and its gradients."""

    def step(x: Tensor, w: Tensor) -> list[Tensor]:
        y = ONE_MAP[name](F.conv2d(x, w)) * 1.0
        return [y, *torch.autograd.grad(y.square().sum(), [x, w])]

    check_function(step, [leaf(batch, 3, 4, 5), leaf(4, 3, 1, 1, seed=1)], (), rows_max_pixels)


def assigned(x: Tensor) -> Tensor:
    x[:, :2] = -3.0 * x[:, 2:]
    return x


def filled(x: Tensor) -> Tensor:
    x[:, 1:3, 1:] = 0.5
    return x


def moved(x: Tensor) -> Tensor:
    x[:, 1], x[..., -1] = x[:, 0] + x[:, 2], x[..., 0]
    return x


def scaled(x: Tensor) -> Tensor:
    x[:, :2].mul_(2.0)
    x[:, 1:] += x[:, :1]
    return x


def begun_with_zeros(x: Tensor) -> Tensor:
    y = torch.zeros_like(x)
    y[:, 1:] = x[:, :-1]
    return y


@LAYOUTS
@pytest.mark.parametrize("write", [assigned, filled, moved, scaled, begun_with_zeros])
def test_parts_of_a_map_are_written(
    write: Callable[[Tensor], Tensor], rows_max_pixels: int
) -> None:
    def step(x: Tensor, w: Tensor, g: Tensor) -> list[Tensor]:
        y = F.conv2d(x, w)
        written = write(y)
        return [written * y, *torch.autograd.grad(written * y, [x, w], g)]

    x, w = leaf(2, 3, 4, 5), leaf(4, 3, 1, 1, seed=1)
    check_function(step, [x, w, leaf(2, 4, 4, 5, seed=2, grad=False)], (), rows_max_pixels)


DIFFERENTIABLE = [
    "slice channels",
    "slice with steps",
    "slice from the end",
    "repeat",
    "flatten",
    "permute",
    "pad",
    "crop",
    "mean of pixels",
    "mean of channels",
    "expand",
    "cat with itself",
]


@LAYOUTS
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradient_through_one_map(name: str, rows_max_pixels: int) -> None:
    def step(x: Tensor, w: Tensor, g: Tensor) -> list[Tensor]:
        y = ONE_MAP[name](F.conv2d(x, w))
        return [y, *torch.autograd.grad(y, [x, w], g)]

    x, w = leaf(2, 3, 4, 5), leaf(4, 3, 1, 1, seed=1)
    g = leaf(*ONE_MAP[name](F.conv2d(x, w)).shape, seed=2, grad=False)
    check_function(step, [x, w, g], (), rows_max_pixels)


@LAYOUTS
@pytest.mark.parametrize(
    "shape", [(), (1,), (4, 1, 1), (1, 4, 1, 1), (2, 4, 1, 1), (2, 1, 4, 5), (1, 1, 4, 5), (5,)]
)
def test_broadcasting(shape: tuple[int, ...], rows_max_pixels: int) -> None:
    def forward(x: Tensor, w: Tensor, other: Tensor) -> list[Tensor]:
        y = F.conv2d(x, w)
        return [y * other, other - y, torch.maximum(y, other)]

    inputs = [leaf(2, 3, 4, 5), leaf(4, 3, 1, 1, seed=1), leaf(*shape, seed=2)]
    check_function(forward, inputs, (), rows_max_pixels)
    check_function(forward, inputs[:2], inputs[2:], rows_max_pixels)


@LAYOUTS
def test_squeeze_and_excite(rows_max_pixels: int) -> None:
    def step(x: Tensor, a: Tensor, b: Tensor, g: Tensor) -> list[Tensor]:
        y = F.conv2d(x, a)
        gate = F.hardsigmoid(F.conv2d(F.relu(y.mean((2, 3), keepdim=True)), b))
        y = y * gate
        return [y, *torch.autograd.grad(y, [x, a, b], g)]

    a, b = leaf(4, 3, 1, 1, seed=1), leaf(4, 4, 1, 1, seed=2)
    g = leaf(2, 4, 5, 3, seed=3, grad=False)
    check_function(step, [leaf(2, 3, 5, 3), a, b, g], (), rows_max_pixels)


def test_arithmetic() -> None:
    def step(x: Tensor, y: Tensor, g: Tensor) -> list[Tensor]:
        z = torch.sub(x, y, alpha=2) / (y * y + 1) + (-x).exp().sqrt() + x.abs().reciprocal()
        z = z + (x**2 + 1).log() + (y.abs() + 1).rsqrt() + (y.abs() + 1) ** 1.5 + torch.tanh(y)
        return [z, *torch.autograd.grad(z, [x], g)]

    x = (leaf(3, 4).detach().abs() + 0.5).requires_grad_()
    check_function(step, [x, leaf(3, 4, seed=1, grad=False), leaf(3, 4, seed=2, grad=False)])


def test_more_arithmetic() -> None:
    def step(x: Tensor, y: Tensor, g: Tensor) -> list[Tensor]:
        z = torch.expm1(x) + torch.log1p(y.abs()) + torch.erf(x * y)
        z = z + torch.rsub(x, 2.0, alpha=3) + torch.rsub(x, y) + x.clamp(-0.5, 0.7) * y
        z = z + x.clamp(min=0.1) + y * x.clamp(max=0.3) + x.amax(1, keepdim=True)
        return [z, x.amax(), *torch.autograd.grad(z, [x], g)]

    inputs = [leaf(3, 4), leaf(3, 4, seed=1, grad=False), leaf(3, 4, seed=2, grad=False)]
    check_function(step, inputs)


@LAYOUTS
def test_the_largest_of_a_map(rows_max_pixels: int) -> None:
    def forward(x: Tensor, w: Tensor) -> list[Tensor]:
        y = F.conv2d(x, w)
        return [y.amax((2, 3)), y.amax((0, 2, 3), keepdim=True), y.amax((2, 3), keepdim=True) * y]

    check_function(forward, [leaf(2, 3, 4, 5), leaf(4, 3, 1, 1, seed=1)], (), rows_max_pixels)


@LAYOUTS
def test_copies_in_place(rows_max_pixels: int) -> None:
    def forward(x: Tensor, w: Tensor) -> list[Tensor]:
        y = F.conv2d(x, w)
        z = (y * 2).copy_(y + 1) + y
        return [z, (y * 1).copy_(x.mean((2, 3), keepdim=True)[:, :1]) * z]

    check_function(forward, [leaf(2, 3, 4, 5), leaf(4, 3, 1, 1, seed=1)], (), rows_max_pixels)


def test_a_square_is_a_product() -> None:
    assert operators(lower_function(lambda x: [x**2], [leaf(2, 3)])) == ["Mul"]


@LAYOUTS
def test_masks(rows_max_pixels: int) -> None:
    """Comparisons, their logic, and masks in arithmetic, as custom layers use them."""

    def forward(x: Tensor, w: Tensor) -> list[Tensor]:
        y = F.conv2d(x, w)
        inside = (y > -0.5) & (y <= 0.5)
        outside = (y < -0.5) | ~(y <= 0.5) | (y >= y + 1)
        chosen = torch.where(inside, y, y * 2)
        return [y * inside, outside * y, inside.to(y.dtype) + outside, chosen]

    check_function(forward, [leaf(2, 3, 4, 5), leaf(4, 3, 1, 1, seed=1)], (), rows_max_pixels)


def test_matrix_products_read_transposes_in_place() -> None:
    def step(x: Tensor, w: Tensor, b: Tensor, g: Tensor) -> list[Tensor]:
        y = F.linear(x, w, b)
        return [y, *torch.autograd.grad(y, [x, w, b], g)]

    inputs = [leaf(4, 3), leaf(5, 3, seed=1), leaf(5, seed=2), leaf(4, 5, seed=3, grad=False)]
    model = check_function(step, inputs)
    assert operators(model).count("Gemm") == 3
    assert "Transpose" not in operators(model)


def test_what_depends_on_constants_alone_is_computed_once() -> None:
    def forward(x: Tensor, a: Tensor, b: Tensor) -> list[Tensor]:
        return [x * ((a + b).exp() @ b.t()).sum((0, 1))]

    constants = [leaf(3, 4, grad=False), leaf(3, 4, seed=1, grad=False)]
    assert operators(check_function(forward, [leaf(2, 5)], constants)) == ["Mul"]


def test_an_unknown_operator_is_named() -> None:
    with pytest.raises(PocketuneError, match=r"aten\.cumprod\.default"):
        lower_function(lambda x: [x.cumprod(1)], [leaf(2, 3)])


def test_other_precisions_are_refused() -> None:
    with pytest.raises(PocketuneError, match="float16"):
        lower_function(lambda x: [x.half().float()], [leaf(2, 3)])
