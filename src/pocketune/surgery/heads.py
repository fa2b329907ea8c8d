"""One output layer with a bias: in place of averaged heads, and of a layer without one."""

from __future__ import annotations

import copy
from itertools import takewhile

import torch
from torch import Tensor, nn

from pocketune.errors import PocketuneError
from pocketune.networks.anatomy.anatomy import known_anatomy
from pocketune.networks.anatomy.modules import has_own_forward, is_convolution, weighs
from pocketune.networks.anatomy.output import find_output
from pocketune.networks.anatomy.trunk import Call, Run, run
from pocketune.networks.copies import copy_network, gradients_on
from pocketune.networks.probe import probing

TOLERANCE = 1e-5
"""Largest difference of the class scores, relative to the largest, that rounding explains."""


def settle_output(network: nn.Module) -> None:
    """Let one linear layer with a bias compute the class scores, in place, where that is exact.

    The class scores of some networks are the average of two heads that read the same embeddings:
    the classifier of LeViT, EfficientFormer and RepViT, and the head that learned from a teacher.
    Each may have a batch norm before its linear layer. With running statistics, as in evaluation,
    their average is one linear layer, which takes the place of the first; the others repeat its
    scores. Heads that read different embeddings, as the two tokens of the distilled DeiT, become
    one linear layer on all of these, side by side. Where that would change the scores, the heads
    stay.

    An output layer without a bias gets one of zeros: the device sets weight and bias for new
    classes.
    """
    layers = _output_layers(network)
    if len(layers) > 1:
        _join(network, layers)
        layers = _output_layers(network)
    if len(layers) == 1:
        _add_bias(network.get_submodule(layers[0]))


def _output_layers(network: nn.Module) -> tuple[str, ...]:
    """Paths of the last layers with weights; none if they cannot be found."""
    body = known_anatomy(network)
    if body is None:
        try:
            return find_output(network).layers
        except PocketuneError:
            return ()
    *others, last = (n for n in body.classifier if weighs(network.get_submodule(n)))
    outputs = _outputs(network.get_submodule(last))
    if any(_outputs(network.get_submodule(other)) == outputs for other in others):
        return find_output(network).layers
    return (last,)


def _outputs(layer: nn.Module) -> int:
    if isinstance(layer, nn.Linear):
        return layer.out_features
    return layer.out_channels if is_convolution(layer) else 0


class Repeated(nn.Module):
    """In place of a head: the scores that another head has just computed."""

    def __init__(self) -> None:
        super().__init__()
        self.scores: list[Tensor] = []

    def note(self, _: nn.Module, __: tuple[Tensor, ...], scores: Tensor) -> None:
        """A forward hook of the other head."""
        self.scores[:] = [scores]

    def forward(self, x: Tensor) -> Tensor:  # noqa: ARG002
        """(N, features) -> the scores (N, classes), once."""
        return self.scores.pop()


class Waiting(nn.Module):
    """In place of a head: keeps what it reads for the last head, and adds nothing to the scores."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[Tensor] = []
        self.last: list[SideBySide] = []  # registered at a path of its own

    def forward(self, x: Tensor) -> Tensor:
        """(N, features) -> zeros (N, classes), neither of which a kit has as a number."""
        self.read[:] = [x]
        (last,) = self.last
        return 0 * (x[:, :1] + last.linear.weight[:, 0]).detach()


class SideBySide(nn.Module):
    """In place of the last head: all scores, from what the heads read side by side.

    Args:
        linear: From the features of all heads, in the order of their calls, to the mean scores.
        others: In place of the other heads, in that order.
    """

    def __init__(self, linear: nn.Linear, others: list[Waiting]) -> None:
        super().__init__()
        self.linear = linear
        self.others = others  # registered at paths of their own
        for other in others:
            other.last[:] = [self]

    def forward(self, x: Tensor) -> Tensor:
        """(N, features of the last head) -> (N, classes), as often as the network divides them."""
        read = [other.read.pop() for other in self.others]
        scores: Tensor = self.linear(torch.cat((*read, x), 1))
        return scores * (1 + len(read))


def _join(network: nn.Module, layers: tuple[str, ...]) -> None:
    """Put one linear layer in place of the heads with these last layers, if it gives the same."""
    seen = run(network)
    heads = _heads(layers)
    if not all(path in seen.calls and _is_head(seen.calls[path]) for path in heads):
        return
    heads.sort(key=lambda path: seen.calls[path].order)
    joined = copy_network(network)
    if len({id(seen.calls[path].given[0]) for path in heads}) == 1:
        output = _put_first(joined, heads, seen)
    else:
        output = _put_last(joined, heads, seen)
    if not any(p.is_meta for p in network.parameters()) and not _same(
        network, joined, output, seen
    ):
        return
    for path in heads:
        network.set_submodule(path, joined.get_submodule(path), strict=True)


def _put_first(network: nn.Module, heads: list[str], seen: Run) -> str:
    """Replace heads that read the same by the first one; return the path of its linear layer."""
    first, *others = heads
    averaged = _average([network.get_submodule(path) for path in heads], seen.calls[first])
    network.set_submodule(first, averaged, strict=True)
    for path in others:
        repeated = Repeated()
        averaged.register_forward_hook(repeated.note)
        network.set_submodule(path, repeated, strict=True)
    return first


def _put_last(network: nn.Module, heads: list[str], seen: Run) -> str:
    """Replace heads that read different things by the last; return the path of its linear layer."""
    parts = [_average([network.get_submodule(path)], seen.calls[path]) for path in heads]
    *others, last = heads
    waiting = [Waiting() for _ in others]
    for path, each in zip(others, waiting, strict=True):
        network.set_submodule(path, each, strict=True)
    network.set_submodule(last, SideBySide(_concatenate(parts), waiting), strict=True)
    return f"{last}.linear"


def _heads(layers: tuple[str, ...]) -> list[str]:
    """The outermost modules that each hold one of these layers and no other."""
    names = sorted(path.split(".") for path in layers)
    pairs = zip(names[0], names[-1], strict=False)  # the first and the last differ soonest
    shared = len([*takewhile(lambda pair: pair[0] == pair[1], pairs)])
    return [".".join(name[: shared + 1]) for name in names]


def _is_head(call: Call) -> bool:
    """Whether a module reads embeddings (N, D) and returns scores (N, classes)."""
    return len(call.given) == len(call.made) == 1 and call.given[0].dim() == call.made[0].dim() == 2


def _average(heads: list[nn.Module], call: Call) -> nn.Linear:
    """The linear layer that computes the mean of these heads in evaluation, if they are linear.

    Its bias is their mean on zeros, and its weights are what the unit vectors add to that.
    """
    inputs, outputs = call.given[0].shape[1], call.made[0].shape[1]
    like = next(heads[0].parameters())
    layer = nn.Linear(inputs, outputs, device=like.device, dtype=like.dtype)
    if like.is_meta:
        return layer
    basis = torch.eye(inputs, dtype=torch.float64, device=like.device)
    with torch.no_grad():
        exact = [copy.deepcopy(head).double().eval() for head in heads]
        bias = torch.stack([head(torch.zeros_like(basis[:1])) for head in exact]).mean(0)
        columns = torch.stack([head(basis) for head in exact]).mean(0) - bias
        layer.weight.copy_(columns.T)
        layer.bias.copy_(bias[0])
    return layer.requires_grad_(like.requires_grad)


def _concatenate(parts: list[nn.Linear]) -> nn.Linear:
    """The linear layer that computes the mean of these on what they read, side by side."""
    like = parts[0]
    inputs = sum(part.in_features for part in parts)
    layer = nn.Linear(inputs, like.out_features, device=like.weight.device, dtype=like.weight.dtype)
    with torch.no_grad():
        layer.weight.copy_(torch.cat([part.weight for part in parts], 1) / len(parts))
        layer.bias.copy_(torch.stack([part.bias for part in parts]).mean(0))
    return layer.requires_grad_(like.weight.requires_grad)


def _same(network: nn.Module, joined: nn.Module, head: str, seen: Run) -> bool:
    """Whether both compute the same scores in evaluation, and they are those of the joined head."""
    like = next(network.parameters())
    image = next(iter(seen.calls.values())).given[0]
    images = torch.randn(image.shape, generator=torch.Generator().manual_seed(0)).to(like)
    scores: list[Tensor] = []

    def note(_: str, __: nn.Module, made: list[Tensor]) -> None:
        scores.append(made[0])

    with probing(network, paths=()):
        wanted = network(images)
    try:
        with probing(joined, paths=[head], leave=note):
            found = joined(images)
    except RuntimeError:  # the scores of the heads are more than added
        return False
    if not isinstance(wanted, Tensor) or not isinstance(found, Tensor):
        return False
    room = TOLERANCE * float(wanted.abs().max())
    return all(torch.allclose(each, wanted, rtol=0, atol=room) for each in (found, *scores))


def _add_bias(layer: nn.Module) -> None:
    """Give a layer without a bias one of zeros, which changes nothing, if the layer adds it."""
    if not (isinstance(layer, nn.Linear) or is_convolution(layer)) or layer.bias is not None:
        return
    weight = layer.weight
    zeros = torch.zeros(_outputs(layer), dtype=weight.dtype, device=weight.device)
    layer.bias = nn.Parameter(zeros, requires_grad=weight.requires_grad)
    if has_own_forward(layer) and not _depends_on_bias(layer):
        layer.bias = None


@gradients_on()
def _depends_on_bias(layer: nn.Linear | nn.Conv2d) -> bool:
    """Whether a layer with a forward pass of its own, as a cosine classifier's, reads its bias."""
    layer = copy.deepcopy(layer).requires_grad_()
    assert layer.bias is not None
    sides = layer.weight.shape[1:] if isinstance(layer, nn.Linear) else (layer.in_channels, 1, 1)
    try:
        scores = layer(layer.weight.new_ones(2, *sides))
        (gradient,) = torch.autograd.grad(scores.sum(), layer.bias, allow_unused=True)
    except Exception:  # its own code may raise anything
        return False
    return gradient is not None
