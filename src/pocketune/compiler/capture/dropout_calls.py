"""The calls of dropouts in a forward pass: their shapes, and whether the frozen part makes them."""

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pocketune.errors import PocketuneError, first_line
from pocketune.networks.copies import copy_shapes
from pocketune.networks.probe import float_type, probing, set_training
from pocketune.networks.shapes import RememberedShapes


class DropoutCall(NamedTuple):
    """A call of a dropout.

    Attributes:
        shape: Of its input.
        is_frozen: Whether it belongs to the frozen part: nothing trained is before it, and no
            trained layer reads what it returns, as a classifier does. Operators without weights
            may be between the two, but no sum with other maps, as a residual block has it.
    """

    shape: tuple[int, ...]
    is_frozen: bool


def dropout_calls(
    network: nn.Module, paths: Collection[str], images: tuple[int, ...]
) -> dict[str, list[DropoutCall]]:
    """The modules of these that a forward pass in training calls, with each of their calls.

    Args:
        network: The network.
        paths: Of its dropouts.
        images: The shape (batch, 3, size, size) of what it takes.

    Raises:
        PocketuneError: The network does not take such images.
    """
    if not paths:
        return {}
    given: list[tuple[str, tuple[int, ...], bool]] = []
    results: list[Any] = []
    read: set[Any] = set()
    frozen: set[Any] = set()
    mark = torch.zeros((), device="meta", requires_grad=True)

    def enter(path: str, module: nn.Module, tensors: list[Tensor]) -> None:
        if path in paths:
            given.append((path, tuple(tensors[0].shape), _follows_from_trained(tensors[0])))
        elif any(each.requires_grad for each in module.parameters(recurse=False)):
            read.update(node for tensor in tensors for node in _operators(tensor, frozen))

    def leave(path: str, module: nn.Module, tensors: list[Tensor]) -> None:
        if path in paths:
            result = tensors[0]
            if not result.requires_grad:  # under `no_grad` or behind `detach`
                with torch.enable_grad():
                    result += mark
            results.append(result.grad_fn)
        elif _is_frozen(module):
            frozen.update({tensor.grad_fn for tensor in tensors}.difference(results))

    copied = copy_shapes(network)
    set_training(copied)
    watched = probing(copied, enter=enter, leave=leave, evaluate=False, gradients=True)
    with watched, RememberedShapes():
        run_shapes(copied, images)
    calls: dict[str, list[DropoutCall]] = {}
    for (path, shape, trained), result in zip(given, results, strict=True):
        calls.setdefault(path, []).append(DropoutCall(shape, not trained and result not in read))
    return calls


def _is_frozen(module: nn.Module) -> bool:
    """Whether a module has parameters or buffers of its own, and trains none."""
    own = (*module.parameters(recurse=False), *module.buffers(recurse=False))
    return bool(own) and not any(each.requires_grad for each in own)


def _follows_from_trained(tensor: Tensor) -> bool:
    """Whether a tensor is computed from a parameter that autograd records."""
    seen = {tensor.grad_fn}
    stack = [*seen]
    while stack:
        node = stack.pop()
        if isinstance(getattr(node, "variable", None), nn.Parameter):
            return True
        new = {*_sources(node)} - seen
        seen |= new
        stack += new
    return False


def _operators(tensor: Tensor, before: Collection[Any]) -> Iterator[Any]:
    """Nodes of autograd of the last operators that made a tensor, up to one that joins several.

    Those `before` are passed over, and all that is before them.
    """
    nodes = [tensor.grad_fn]
    while len(nodes) == 1 and nodes[0] not in before:
        yield nodes[0]
        nodes = _sources(nodes[0])


def _sources(node: Any) -> list[Any]:
    """The nodes that a node of autograd reads from; none of None."""
    return [] if node is None else [source for source, _ in node.next_functions if source]


def run_shapes(network: nn.Module, images: tuple[int, ...]) -> None:
    """Run a copy of shapes on images of this shape, which autograd records unless it is off.

    Raises:
        PocketuneError: It does not take such images.
    """
    kind = float_type(network)
    leaf = torch.empty(images, device="meta", dtype=kind, requires_grad=True)
    try:
        network(leaf.clone())  # which the network may write into
    except PocketuneError:
        raise
    except Exception as error:  # a forward pass may raise anything
        reason = first_line(error)
        raise PocketuneError(
            f"{type(network).__name__} cannot take images of shape {images}: {reason}"
        ) from error
