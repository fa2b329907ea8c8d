"""Watching a network run: which modules are called, and with what tensors."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from pocketune.networks.anatomy.modules import BatchNorm
from pocketune.networks.copies import copy_shapes, gradients_on
from pocketune.networks.image_sizes import image_channels, image_sizes
from pocketune.networks.shapes import RememberedShapes, tensors

Seen = Callable[[str, nn.Module, list[Tensor]], None]
"""Called with a module's path, the module, and the tensors that it is given or returns."""


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
    """Watch the calls of modules while the context is active.

    Afterwards hooks are removed and every module's training mode is restored, also after an error.

    Args:
        network: What runs inside the context.
        paths: Modules to watch; None for all.
        enter: Called before a module, with the tensors that it is given.
        leave: Called after a module, with the tensors that it returns.
        evaluate: Run the network in evaluation mode; False leaves the modes as they are.
        gradients: Whether autograd records; None leaves that to the caller.
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


@contextmanager
def running_modules(network: nn.Module, *, gradients: bool | None = None) -> Iterator[list[str]]:
    """The paths of the modules that run, the innermost last; after an error, of those that ran.

    Args:
        network: What runs inside the context, in the modes that it has.
        gradients: As of `probing`.
    """
    paths: list[str] = []

    def enter(path: str, _: nn.Module, __: list[Tensor]) -> None:
        paths.append(path)

    def leave(_: str, __: nn.Module, ___: list[Tensor]) -> None:
        paths.pop()

    with probing(network, enter=enter, leave=leave, evaluate=False, gradients=gradients):
        yield paths


def trial_images(
    network: nn.Module, sizes: Iterable[int], *, requires_grad: bool
) -> Iterator[Tensor]:
    """Pairs of images without values, of each number of channels and size that may be taken."""
    for channels, size in product(image_channels(network), sizes):
        shape, kind = (2, channels, size, size), float_type(network)
        yield torch.empty(shape, device="meta", dtype=kind, requires_grad=requires_grad)


def watch_inputs(
    network: nn.Module,
    batches: Iterable[Tensor],
    watchers: Mapping[str, Callable[[Tensor], None]],
) -> int:
    """Run a network in evaluation mode, and pass each watched module's input to its watcher.

    Args:
        network: Not changed; its training modes are restored.
        batches: Normalized images (N, 3, H, W).
        watchers: Called with the first input of a module, by the module's path.

    Returns:
        The number of images.
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
    """Input shapes of those of these modules that a forward pass calls, without computing.

    Args:
        network: Takes images of shape `images`; not changed.
        paths: Paths of modules.
        images: Shape of the images, (N, 3, H, W).
    """
    shapes: dict[str, tuple[int, ...]] = {}

    def note(path: str, _: nn.Module, given: list[Tensor]) -> None:
        shapes[path] = tuple(given[0].shape)

    network = copy_shapes(network)
    with probing(network, paths=paths, enter=note), RememberedShapes():
        network(torch.empty(images, device="meta", dtype=float_type(network)))
    return shapes


def usual_size(network: nn.Module, *before: int) -> int:
    """Side of images that a network takes in evaluation, found without computing.

    Sizes `before` are tried first, and those of `image_sizes` then. The first one of all is
    returned if the network takes none, so that a run of it shows why.
    """
    sizes = (*before, *image_sizes(network))
    copied, kind = copy_shapes(network), float_type(network)

    def takes(size: int) -> bool:
        try:
            copied(torch.empty(1, 3, size, size, device="meta", dtype=kind))
        except Exception:  # the network's own code may raise anything
            return False
        return True

    with probing(copied), RememberedShapes():
        return next(filter(takes, sizes), sizes[0])


def set_training(network: nn.Module) -> None:
    """Set a copy of shapes to training, except its norms, which then refuse single values."""
    for module in network.modules():
        module.training = not isinstance(module, BatchNorm)


def float_type(network: nn.Module) -> torch.dtype:
    """The type of the images that a network takes: that of its first parameter of floats."""
    floats = (p.dtype for p in network.parameters() if p.is_floating_point())
    return next(floats, torch.float32)


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
