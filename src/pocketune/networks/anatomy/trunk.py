"""A network seen in a run: which modules read what, and which of them everything passes through.

The network runs once on the meta device. A module is on the *trunk* if every path of the autograd
graph from the image to the output leads through what the module returns. That holds if the paths
through its results are as many as those of the whole network.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import Tensor, nn

from pocketune.errors import PocketuneError
from pocketune.networks.anatomy.modules import main_modules, weighs
from pocketune.networks.checks import require_shapes
from pocketune.networks.copies import copy_shapes, disable_inplace, gradients_on
from pocketune.networks.image_sizes import image_sizes
from pocketune.networks.probe import probing, trial_images
from pocketune.networks.shapes import RememberedShapes, tensors

PRODUCTS = ("BmmBackward", "ScaledDotProduct")
"""Beginnings of the names of autograd's nodes that multiply matrices, each image by its own."""


@dataclass
class Call:
    """The first call of a module.

    Attributes:
        order: How many modules were called before it.
        given: The tensors that it read, without values.
        made: The tensors that it returned.
        times: How often the module was called in all.
    """

    order: int
    given: list[Tensor]
    made: list[Tensor] = field(default_factory=list)
    times: int = 0


@dataclass(frozen=True)
class Run:
    """What a run has shown.

    Attributes:
        calls: The first call of each module, by its path in the order of the calls.
        trunk: Paths of the modules that everything passes through; not that of the network.
        outputs: The tensors that the network returned.
        nodes: Those of autograd before the outputs, each behind all that it follows from.
    """

    calls: dict[str, Call]
    trunk: frozenset[str]
    outputs: list[Tensor]
    nodes: list[Any]

    def operators(self, path: str) -> frozenset[str]:
        """Names of autograd's nodes between what a module reads and what it returns."""
        return frozenset(map(_name, self._between(path)))

    def multiplies(self, path: str) -> bool:
        """Whether a module multiplies matrices of which both follow from the image."""
        nodes = (node for node in self._between(path) if _name(node).startswith(PRODUCTS))
        return any(len(_sources(node)) > 1 for node in nodes)

    def reaches_output(self, path: str) -> bool:
        """Whether the outputs depend on what a module returns."""
        return any(tensor.grad_fn in self._behind_outputs for tensor in self.calls[path].made)

    @cached_property
    def _behind_outputs(self) -> frozenset[Any]:
        return frozenset(self.nodes)

    def added(self, path: str) -> bool:
        """Whether what a module returns is only read to be added to something."""
        node = self.calls[path].made[0].grad_fn
        readers = [other for other in self.nodes if node in _sources(other)]
        return bool(readers) and all(_name(reader) == "AddBackward" for reader in readers)

    def _between(self, path: str) -> set[Any]:
        call = self.calls[path]
        stop = {tensor.grad_fn for tensor in call.given}
        stack = [tensor.grad_fn for tensor in call.made if tensor.grad_fn not in stop]
        seen = set(stack)
        while stack:
            new = [node for node in _sources(stack.pop()) if node not in seen | stop]
            seen.update(new)
            stack.extend(new)
        return seen


@gradients_on()
def run(network: nn.Module) -> Run:
    """Run a copy of a network on the meta device.

    Raises:
        PocketuneError: It cannot run there; the message names the module that fails.
    """
    require_shapes(network)
    copied = copy_shapes(network).requires_grad_(False)
    disable_inplace(copied)
    failures: list[tuple[str, Exception]] = []
    for images in trial_images(copied, image_sizes(copied), requires_grad=True):
        calls: dict[str, Call] = {}
        active: list[str] = []
        try:
            outputs = tensors(_watched(copied, images, calls, active))
        except Exception as error:  # the network's own code may raise anything
            failures.append((active[-1] if active else "", error))
            continue
        ends = {tensor.grad_fn for tensor in outputs if tensor.grad_fn is not None}
        nodes = _topological(ends)
        return Run(calls, _trunk(calls, images, ends, nodes), outputs, nodes)
    raise _failure(network, failures)


def calls_of(network: nn.Module) -> dict[str, Call]:
    """The first call of each module; none if the network does not run without values."""
    try:
        return run(network).calls
    except PocketuneError:
        return {}


def _watched(
    network: nn.Module, images: Tensor, calls: dict[str, Call], active: list[str]
) -> object:
    """Run a network, and note the calls of its modules; `active` are those that run."""

    def enter(path: str, _: nn.Module, given: list[Tensor]) -> None:
        active.append(path)
        calls.setdefault(path, Call(len(calls), given)).times += 1

    def leave(path: str, _: nn.Module, made: list[Tensor]) -> None:
        active.pop()
        if not calls[path].made:
            calls[path].made = made

    paths = [path for path, _ in main_modules(network)]
    with (
        probing(network, paths=paths, enter=enter, leave=leave, gradients=True),
        RememberedShapes(),
    ):
        return network(images)


def _failure(network: nn.Module, failures: list[tuple[str, Exception]]) -> PocketuneError:
    """The failure that came latest in the network: others are of sizes that it does not take."""
    paths = [path for path, _ in main_modules(network)]
    path, error = max(failures, key=lambda failure: paths.index(failure[0]))
    where = f"its module {path!r}" if path else "its forward method"
    reason = str(error).partition("\n")[0]
    return PocketuneError(
        f"{type(network).__name__} cannot be followed without the values of its maps: {where} "
        f"raises {type(error).__name__}: {reason}"
    )


def _trunk(
    calls: dict[str, Call], images: Tensor, ends: set[Any], order: list[Any]
) -> frozenset[str]:
    """Paths of the modules whose results all paths from the image to the ends lead through."""
    behind: defaultdict[Any, int] = defaultdict(int, dict.fromkeys(ends, 1))
    for node in reversed(order):
        for source in _sources(node):
            behind[source] += behind[node]
    before: dict[Any, int] = {}
    for node in order:
        if getattr(node, "variable", None) is images:
            before[node] = 1
        else:
            before[node] = sum(before[source] for source in _sources(node))
    total = sum(before[node] for node in ends)

    def passes(call: Call) -> int:
        nodes = {tensor.grad_fn for tensor in call.made}
        return sum(before.get(node, 0) * behind.get(node, 0) for node in nodes)

    return frozenset(path for path, call in calls.items() if path and passes(call) == total)


def _topological(ends: Iterable[Any]) -> list[Any]:
    """Every node before these, each behind all those that it comes from."""
    order: list[Any] = []
    seen: set[Any] = set()
    stack = [(end, False) for end in ends]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((source, False) for source in _sources(node) if source not in seen)
    return order


def _name(node: Any) -> str:
    return type(node).__name__.rstrip("0123456789")


def _sources(node: Any) -> list[Any]:
    return [source for source, _ in node.next_functions if source is not None]


def weighted(modules: Mapping[str, nn.Module], seen: Run) -> list[str]:
    """Paths of the linear layers and convolutions that run, in the order in which they do."""
    return [path for path in seen.calls if path in modules and weighs(modules[path])]


def output_layers(modules: Mapping[str, nn.Module], seen: Run) -> tuple[str, ...]:
    """The last layers with weights before the outputs, in the order in which they run."""
    made = {
        tensor.grad_fn: path for path in weighted(modules, seen) for tensor in seen.calls[path].made
    }
    reached = reached_first(seen.outputs, made)
    return tuple(path for path in seen.calls if path in reached)


def reached_first(outputs: Iterable[Tensor], made: Mapping[Any, str]) -> set[str]:
    """Paths of the modules that are reached first on the way back from a network's outputs.

    Args:
        outputs: Of the network.
        made: Paths of modules, by autograd's nodes of what they have returned.
    """
    stack = [tensor.grad_fn for tensor in outputs if tensor.grad_fn is not None]
    reached: set[str] = set()
    visited = set(stack)
    while stack:
        node = stack.pop()
        if node in made:
            reached.add(made[node])
            continue
        new = [source for source in _sources(node) if source not in visited]
        visited.update(new)
        stack.extend(new)
    return reached
