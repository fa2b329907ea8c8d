"""What networks on tokens and channels-last maps compute, forward and backward, in float64."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from pocketune.compiler.capture.operators import PlainOperators
from pocketune.errors import PocketuneError

from ..lowering import check_function, leaf, lower_function, operators

INDEX = torch.tensor([[0, 2, 2], [3, 1, -4]])


def heads(*shapes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    return shapes or ((2, 3, 5, 4),) * 3


EVERY: dict[str, tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...]]] = {
    "attention": (F.scaled_dot_product_attention, heads()),
    "attention of two lengths": (
        partial(F.scaled_dot_product_attention, scale=0.3),
        ((2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 7)),
    ),
    "attention with a mask": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, torch.ones(5, 5).tril().bool()),
        heads(),
    ),
    "attention of a token to none": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, torch.ones(5, 5).tril(-1).bool()),
        heads(),
    ),
    "causal attention": (partial(F.scaled_dot_product_attention, is_causal=True), heads()),
    "attention of grouped queries": (
        partial(F.scaled_dot_product_attention, enable_gqa=True),
        ((2, 6, 5, 4), (2, 3, 5, 4), (2, 3, 5, 4)),
    ),
    "attention with a bias": (
        lambda q, k, v, b: F.scaled_dot_product_attention(q, k, v, b.permute(2, 0, 1).unsqueeze(0)),
        (*heads(), (5, 5, 3)),
    ),
    "attention from one product": (
        lambda x: (
            F.scaled_dot_product_attention(
                *x.reshape(2, 5, 3, 3, 4).permute(2, 0, 3, 1, 4).unbind(0)
            )
            .transpose(1, 2)
            .reshape(2, 5, 12)
        ),
        ((2, 5, 36),),
    ),
    "matmul that broadcasts": (lambda a, b: a @ b, ((2, 3, 4, 5), (5, 2))),
    "matmul that broadcasts heads": (lambda a, b: a @ b, ((2, 3, 4, 5), (3, 5, 2))),
    "matmul of vectors": (lambda a, b: (a @ b).relu(), ((2, 3, 4), (4,))),
    "baddbmm": (lambda c, a, b: torch.baddbmm(c, a, b, alpha=2), ((2, 3, 5), (2, 3, 4), (2, 4, 5))),
    "einsum of heads": (lambda a, b: torch.einsum("bhic,bhjc->bhij", a, b), heads()[:2]),
    "einsum as a linear layer": (
        lambda a, b: torch.einsum("bnc,dc->bnd", a, b),
        ((2, 3, 4), (5, 4)),
    ),
    "einsum in groups": (
        lambda a, b: torch.einsum("bhgc,gdc->bhgd", a, b),
        ((2, 3, 4, 5), (4, 6, 5)),
    ),
    "einsum of images in the second": (
        lambda w, gates: torch.einsum("eko,bek->bko", w, gates),
        ((2, 3, 4), (5, 2, 3)),
    ),
    "einsum that sums one": (
        lambda a, b: torch.einsum("bnc,bnd->bc", a, b),
        ((2, 3, 4), (2, 3, 5)),
    ),
    "einsum without an arrow": (lambda a, b: torch.einsum("ij,jk", a, b), ((2, 3), (3, 4))),
    "unbind": (lambda x: torch.mul(*x.unbind(1)), ((3, 2, 4),)),
    "split": (lambda x: torch.mul(*x.split(2, 1)), ((3, 4, 2),)),
    "split into unequal parts": (lambda x: x.split([1, 3], -1)[1].exp(), ((3, 4),)),
    "chunk": (lambda x: torch.mul(*x.chunk(2, -1)), ((3, 2, 4),)),
    "select": (lambda x: x[:, -1] * x[:, 0], ((2, 3, 4),)),
    "stack": (lambda x, y: torch.stack([x, y], 2).exp(), ((2, 3), (2, 3))),
    "roll": (lambda x: x.roll((1, -2), (1, 2)).square(), ((2, 3, 4, 2),)),
    "roll of all": (lambda x: x.roll(2).square(), ((2, 3),)),
    "flip": (lambda x: x.flip(1, 3).square(), ((2, 3, 4, 2),)),
    "pixel shuffle": (lambda x: F.pixel_shuffle(x, 2).square(), ((2, 8, 2, 3),)),
    "pixel unshuffle": (lambda x: F.pixel_unshuffle(x, 2).square(), ((2, 2, 4, 6),)),
    "channel shuffle": (lambda x: F.channel_shuffle(x, 2).square(), ((2, 6, 2, 3),)),
    "nearest upsampling": (lambda x: F.interpolate(x, scale_factor=2).square(), ((2, 2, 2, 3),)),
    "average of tokens": (
        lambda x: F.adaptive_avg_pool1d(x.transpose(1, 2), 1).flatten(1).square(),
        ((2, 5, 3),),
    ),
    "averages of tokens": (lambda x: F.adaptive_avg_pool1d(x, 2).square(), ((2, 3, 5),)),
    "variance": (lambda x: x.var((1, 2), keepdim=True) * x, ((2, 3, 4),)),
    "deviation": (lambda x: x / x.std(-1, keepdim=True, correction=0), ((2, 3, 4),)),
    "variance and mean": (lambda x: torch.add(*torch.var_mean(x, 1)), ((2, 3, 4),)),
    "mean of all": (lambda x: x * x.mean() + x.sum(), ((2, 3),)),
    "maximum of each channel": (lambda x: F.adaptive_max_pool2d(x, 1).exp(), ((2, 3, 4, 4),)),
    "maximum of each window": (lambda x: F.adaptive_max_pool2d(x, (2, 1)).exp(), ((2, 3, 4, 4),)),
    "minimum": (lambda x: x.amin((1, 2)).exp(), ((2, 3, 4),)),
    "filled by a mask": (
        lambda x: x.masked_fill(torch.eye(4).bool(), -2.0).exp(),
        ((2, 4, 4),),
    ),
    "rows of a table": (lambda x: x[INDEX.view(-1)].view(2, 3, 5).permute(2, 0, 1), ((4, 5),)),
    "columns of a table": (lambda x: x[:, INDEX].exp(), ((3, 4),)),
    "index select": (
        lambda x: x.index_select(1, torch.tensor([1, 1, 0])).exp().detach() * x,
        ((2, 3),),
    ),
    "a token for all": (
        lambda token, x: torch.cat([token.expand(len(x), -1, -1), x], 1).exp(),
        ((1, 1, 4), (2, 3, 4)),
    ),
    "a repeated token": (lambda t, x: torch.cat([t.repeat(2, 1, 1), x], 1), ((1, 2, 4), (2, 3, 4))),
    "unit vectors": (lambda x: F.normalize(x, dim=-1), ((2, 3, 4),)),
    "rms norm": (lambda x, w: F.rms_norm(x, (4,), w), ((2, 3, 4), (4,))),
    "clamp by tensors": (
        lambda x: x.clamp(torch.tensor(-0.5), torch.tensor(torch.inf)).exp(),
        ((3, 4),),
    ),
    "clamp by one tensor": (lambda x: x.clamp(max=torch.tensor(0.5)).exp(), ((3, 4),)),
    "standardized kernels": (
        lambda w, gain: F.batch_norm(w.reshape(1, 4, -1), None, None, gain, training=True).exp(),
        ((4, 3, 3, 3), (4,)),
    ),
    "maximum and its place": (lambda x: x.max(1)[0].exp(), ((2, 3, 4),)),
    "maximum among equals": (lambda x: x.relu().max(1, keepdim=True)[0] * x, ((2, 3, 4),)),
    "minimum and its place": (lambda x: x.min(-1, keepdim=True)[0] * x, ((2, 3, 4),)),
    "largest elements": (lambda x: x.topk(2, 1)[0].exp(), ((2, 5, 4),)),
    "gathered": (lambda x: x.gather(1, x.detach().topk(2, 1)[1]).exp(), ((2, 5, 4),)),
    "gathered from a part": (
        lambda x: x.gather(1, x.detach().topk(1, 1)[1][..., :3]).exp(),
        ((2, 5, 4),),
    ),
    "running sum": (lambda x: x.cumsum(1).exp(), ((2, 3, 4),)),
    "lower triangle": (lambda x: x.tril(-1).exp(), ((2, 3, 4),)),
    "power of a parameter": (lambda x, p: (x * x + 1).pow(p), ((2, 3, 4), (1,))),
    "sum of magnitudes": (lambda x: F.normalize(x, p=1, dim=1), ((2, 3, 4),)),
    "distance": (lambda x, y: F.pairwise_distance(x, y), ((2, 4), (2, 4))),
    "log of a sum of exponentials": (lambda x: x.logsumexp((1, 2)), ((2, 3, 4),)),
    "the same that keeps dimensions": (lambda x: x.logsumexp(1, keepdim=True) * x, ((2, 3, 4),)),
    "log sigmoid": (lambda x: F.logsigmoid(4 * x), ((3, 4, 5),)),
    "soft shrink": (lambda x: F.softshrink(x, 0.3), ((3, 4, 5),)),
    "weight norm": (lambda v, g: torch._weight_norm(v, g, 0).exp(), ((4, 3, 2, 2), (4, 1, 1, 1))),
    "weight norm of the last dimension": (
        lambda v, g: torch._weight_norm(v, g, 2).exp(),
        ((2, 3, 4), (1, 1, 4)),
    ),
    "weight norm of all": (
        lambda v, g: (v * (g / torch.norm_except_dim(v, 2, -1))).exp(),
        ((2, 3), ()),
    ),
    "hard shrink": (lambda x: F.hardshrink(x, 0.3), ((3, 4, 5),)),
    "lerp": (lambda x, y: torch.lerp(x, y, 0.3).exp(), ((3, 4), (3, 4))),
    "quotient that is added": (
        lambda x, y: torch.addcdiv(x, x, y * y + 1, value=0.5).exp(),
        ((3, 4), (3, 4)),
    ),
    "windows": (
        lambda x: F.unfold(x, (3, 2), dilation=(1, 2), padding=(1, 0), stride=(2, 1)).exp(),
        ((2, 3, 5, 6),),
    ),
    "sum of windows": (
        lambda x: F.fold(x, (5, 6), (3, 2), (1, 2), (1, 0), (2, 1)).exp(),
        ((2, 12, 12),),
    ),
    "gelu": (F.gelu, ((3, 4, 5),)),
    "gelu by tanh": (partial(F.gelu, approximate="tanh"), ((3, 4, 5),)),
    "silu": (F.silu, ((3, 4, 5),)),
    "gated": (lambda x: torch.mul(*x.chunk(2, 1)).sigmoid(), ((2, 6, 3, 3),)),
}


@pytest.mark.parametrize("name", EVERY)
def test_values_and_gradients(name: str) -> None:
    function, shapes = EVERY[name]
    inputs = [leaf(*shape, seed=i) for i, shape in enumerate(shapes)]
    weights = leaf(*function(*inputs).shape, seed=9, grad=False)

    def step(*given: Tensor) -> list[Tensor]:
        with PlainOperators():
            *tensors, g = given
            y = function(*tensors)
            return [y, *torch.autograd.grad(y, tensors, g)]

    check_function(step, [*inputs, weights])


def test_a_product_in_batches_reads_heads_without_reshaping_them() -> None:
    def scores(q: Tensor, k: Tensor) -> list[Tensor]:
        return [q @ k.transpose(-2, -1)]

    shape = (2, 3, 5, 4)
    model = check_function(scores, [leaf(*shape), leaf(*shape, seed=1)])
    assert operators(model) == ["Transpose", "MatMul"]


def test_permutations_are_joined() -> None:
    model = check_function(
        lambda x: [x.permute(0, 2, 3, 1).permute(0, 3, 1, 2) * 2], [leaf(2, 3, 4, 5)]
    )
    assert operators(model) == ["Mul"]


@pytest.mark.parametrize("curve", [F.gelu, F.silu])
def test_the_derivative_shares_nothing_but_the_input(curve: Callable[[Tensor], Tensor]) -> None:
    def step(x: Tensor, g: Tensor) -> list[Tensor]:
        y = curve(x)
        return [y, *torch.autograd.grad(y, [x], g)]

    model = lower_function(step, [leaf(2, 3), leaf(2, 3, seed=1, grad=False)])
    nodes = list(model.graph.node)
    forward = {name for node in nodes for name in node.output if "0" in _reached(nodes, name)}
    backward = [node for node in nodes if "0" not in _reached(nodes, node.output[0])]
    assert backward
    assert not {name for node in backward for name in node.input} & (forward - {"input0"})


def _reached(nodes: list[object], name: str) -> set[str]:
    """Names of all tensors that depend on one."""
    reached = {name}
    for node in nodes:
        if reached.intersection(node.input):  # type: ignore[attr-defined]
            reached.update(node.output)  # type: ignore[attr-defined]
    return reached


def test_an_index_in_two_dimensions_is_refused() -> None:
    rows = torch.tensor([0, 1])
    with pytest.raises(PocketuneError, match="several dimensions at once"):
        lower_function(lambda x: [x[rows, rows]], [leaf(3, 3)])
