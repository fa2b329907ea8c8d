"""Copying a network, and watching one run: which modules are called, and with what tensors."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from pocketune.torch_private import tree_leaves

Network = TypeVar("Network", bound=nn.Module)


def copy_network(network: Network) -> Network:
    """`copy.deepcopy`, but for tensors with a graph that modules have as attributes.

    PyTorch refuses to copy such a tensor, as a forward pass that notes its features leaves it, or
    `torch.nn.utils.weight_norm` a kernel. The copy has it without its graph.
    """
    memo = {
        id(tensor): tensor.detach().clone()
        for tensor in kept_tensors(network)
        if not tensor.is_leaf
    }
    return copy.deepcopy(network, memo)


def kept_tensors(network: nn.Module) -> Iterator[Tensor]:
    """Every tensor that a module has in an attribute, whether or not it has registered it."""
    for module in network.modules():
        for value in vars(module).values():
            yield from _tensors(value)


def _tensors(value: Any) -> Iterator[Tensor]:
    """Those in an attribute, also in lists and dictionaries."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)


@contextmanager
def gradients_on() -> Iterator[None]:
    """Let autograd record in here, or in the function that this decorates.

    What is copied under `torch.inference_mode` could never be trained, and what looks for
    gradients would find none under it or `torch.no_grad`.
    """
    with torch.inference_mode(False), torch.enable_grad():
        yield


Seen = Callable[[str, nn.Module, list[Tensor]], None]
"""Takes the path of a module that is called, the module, and the tensors given or returned."""


@contextmanager
def probing(
    network: nn.Module,
    *,
    paths: Iterable[str] | None = None,
    enter: Seen | None = None,
    leave: Seen | None = None,
    evaluate: bool = True,
    gradients: bool | None = False,
) -> Iterator[None]:
    """Show the calls of modules while the context is active; then the network is as it was.

    Hooks are removed and every module has its own training mode back, also after an error.

    Args:
        network: what runs inside the context.
        paths: modules whose calls are shown; all of them where it is None.
        enter: is called before a module, with the tensors that it is given.
        leave: is called after a module, with the tensors that it returns.
        evaluate: let the network run in evaluation mode; False leaves the modes alone.
        gradients: whether autograd records; None leaves that to the caller.
    """
    modules = dict(network.named_modules())
    shown = modules if paths is None else {path: network.get_submodule(path) for path in paths}
    modes = {module: module.training for module in modules.values()}
    with ExitStack() as stack:
        for path, module in shown.items():
            if enter is not None:
                before = module.register_forward_pre_hook(_before(path, enter), with_kwargs=True)
                stack.callback(before.remove)
            if leave is not None:
                stack.callback(module.register_forward_hook(_after(path, leave)).remove)
        if evaluate:
            stack.callback(_set_modes, modes)
            network.eval()
        if gradients is not None:
            stack.enter_context(gradients_on() if gradients else torch.no_grad())
        yield


def watch_inputs(
    network: nn.Module,
    batches: Iterable[Tensor],
    watchers: Mapping[str, Callable[[Tensor], None]],
) -> int:
    """Run a network as it predicts, and show each watched module's input to its watcher.

    Args:
        network: it stays as it is, its training modes included.
        batches: normalized images (N, 3, H, W).
        watchers: by the path of the module, what takes its first input.

    Returns:
        How many images there were.
    """
    images = 0
    with probing(network, paths=watchers, enter=lambda path, _, given: watchers[path](given[0])):
        for batch in batches:
            network(batch)
            images += len(batch)
    return images


def input_shapes(
    network: nn.Module, paths: Iterable[str], images: tuple[int, ...]
) -> dict[str, tuple[int, ...]]:
    """Shape of the input of each of these modules that a forward pass calls; computes nothing.

    Args:
        network: takes images of shape `images`, (N, 3, H, W); it stays as it is.
        paths: of modules.
        images: N, 3, H and W.
    """
    shapes: dict[str, tuple[int, ...]] = {}

    def note(path: str, _: nn.Module, given: list[Tensor]) -> None:
        shapes[path] = tuple(given[0].shape)

    network = copy_network(network).to("meta")
    with probing(network, paths=paths, enter=note):
        network(torch.empty(images, device="meta"))
    return shapes


def _before(path: str, enter: Seen) -> Callable[..., None]:
    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        enter(path, module, tensors((args, kwargs)))

    return hook


def _after(path: str, leave: Seen) -> Callable[..., None]:
    def hook(module: nn.Module, _: tuple[Any, ...], output: Any) -> None:
        leave(path, module, tensors(output))

    return hook


def _set_modes(modes: Mapping[nn.Module, bool]) -> None:
    for module, training in modes.items():
        module.training = training


def tensors(values: Any) -> list[Tensor]:
    """Every tensor in nested lists, tuples and dictionaries, in order."""
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]
