"""Dropout whose mask is an input, so that a graph without random numbers can train with it."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from pocketune.compiler.capture.dropout_calls import DropoutCall, dropout_calls, run_shapes
from pocketune.compiler.capture.dropout_functions import Dropouts, may_drop
from pocketune.compiler.capture.operators import PlainOperators
from pocketune.compiler.capture.random_numbers import RandomNumbersError, RefuseRandomNumbers
from pocketune.compiler.capture.stochastic_depth import drops_images, is_stochastic_depth
from pocketune.compiler.capture.supplied_dropout import RepeatedDropout, SuppliedDropout
from pocketune.errors import PocketuneError
from pocketune.kit.manifest import MaskSpec
from pocketune.networks.copies import copy_shapes
from pocketune.networks.probe import running_modules, set_training
from pocketune.networks.shapes import RememberedShapes

SUPPLIED = "supplied_dropouts"
"""Name of the modules that stand for the calls of functions that drop in a module."""


def supply_masks(network: nn.Module, batch: int, size: int) -> tuple[MaskSpec, ...]:
    """Replace each dropout that drops something by a `SuppliedDropout`, in place.

    One that is called several times becomes a `RepeatedDropout`. A module whose forward pass calls
    `functional.dropout` or `dropout2d` gets one, too. One in the frozen part drops nothing, since
    that computes the same in every step.

    Args:
        network: Takes (batch, 3, size, size). A `SuppliedDropout` in it gets a new mask of the
            right shape, so calling this twice is safe.
        batch: Images of a training step.
        size: Height and width of the images, in pixels.

    Returns:
        The masks, by the names of their buffers, in the order of `network.named_modules()`.

    Raises:
        PocketuneError: A dropout of the trained part drops everything, or the network does not
            take such images.
    """
    _separate(network)
    images = batch, 3, size, size
    specs = _supply_modules(network, images)
    if _supply_functions(network, images):
        specs = _supply_modules(network, images)
    return specs


def _separate(network: nn.Module) -> None:
    """Give each path its own dropout, in place: one that is at several would be replaced at one."""
    seen: set[nn.Module] = set()
    for path, module in list(network.named_modules(remove_duplicate=False)):
        if module in seen and _keep(module) < 1:
            network.set_submodule(path, copy.deepcopy(module), strict=True)
        seen.add(module)


def _supply_modules(network: nn.Module, images: tuple[int, ...]) -> tuple[MaskSpec, ...]:
    """Replace the modules that drop, in place."""
    for module in network.modules():
        if isinstance(module, SuppliedDropout):
            module.mask = torch.ones(())  # that of an earlier call may have another batch
    keep = {name: k for name, m in network.named_modules() if (k := _keep(m)) < 1}
    calls = dropout_calls(network, keep, images)
    specs = []
    for name in (each for each in keep if each in calls):
        if keep[name] <= 0 and not all(call.is_frozen for call in calls[name]):
            raise PocketuneError(
                f"dropout {name} drops everything (p=1); give it a rate below 1, or remove it"
            )
        dropout = network.get_submodule(name)
        together = _together(dropout)
        if is_stochastic_depth(dropout) and not all(
            drops_images(dropout, keep[name], len(call.shape)) for call in calls[name]
        ):
            continue  # what it draws is refused
        made = [_supplied(keep[name], call, together) for call in calls[name]]
        masks = [name] if len(made) == 1 else [f"{name}.calls.{i}" for i in range(len(made))]
        supplied = made[0] if len(made) == 1 else RepeatedDropout(made)
        network.set_submodule(name, supplied.train(dropout.training), strict=True)
        for place, each in zip(masks, made, strict=True):
            if isinstance(each, SuppliedDropout):
                specs.append(MaskSpec(f"{place}.mask", tuple(each.mask.shape), each.keep))
    return tuple(specs)


def _supplied(keep: float, call: DropoutCall, together: int | None) -> nn.Module:
    """For the input of a call; the identity in the frozen part."""
    if call.is_frozen:
        return nn.Identity()
    shape = call.shape
    if together is not None:
        shape = (*shape[:together], *(1,) * (len(shape) - together))
    return SuppliedDropout(keep, shape, together=together)


def _supply_functions(network: nn.Module, images: tuple[int, ...]) -> bool:
    """Let calls of functions that drop run modules instead, in place; whether there are any.

    Among them are those of attention, `nn.MultiheadAttention` and PyTorch's function.

    Modules that drop have been replaced before, because they call the functions too.
    """
    if not may_drop(network):
        return False
    found: dict[str, list[SuppliedDropout]] = {}
    with _training_copy(network) as (copied, running):

        def note(_: Tensor, rate: float, together: int | None) -> None:
            made = SuppliedDropout(1 - rate, (), together=together)
            found.setdefault(running[-1], []).append(made)

        with Dropouts(note), PlainOperators():  # attention calls a dropout then
            run_shapes(copied, images)
    for path, calls in found.items():
        module = network.get_submodule(path)
        module.add_module(SUPPLIED, RepeatedDropout(calls).train(module.training))
        module.forward = partial(_forward, module)
    return bool(found)


@contextmanager
def _training_copy(network: nn.Module) -> Iterator[tuple[nn.Module, list[str]]]:
    """A copy without values in training, and the paths of the modules that run."""
    copied = copy_shapes(network)
    set_training(copied)
    with running_modules(copied, gradients=False) as running, RememberedShapes():
        yield copied, running


def refuse_random_numbers(network: nn.Module, batch: int, size: int) -> None:
    """Check that a forward pass in training draws none but the masks, not even in vain.

    A graph tells which of them are read; without one, that is not known.

    Args:
        network: As `supply_masks` left it.
        batch: Images of a training step.
        size: Height and width of the images, in pixels.

    Raises:
        PocketuneError: A layer draws random numbers.
    """
    with (
        _training_copy(network) as (copied, running),
        RefuseRandomNumbers(running),
        PlainOperators(),
    ):
        try:
            run_shapes(copied, (batch, 3, size, size))
        except RandomNumbersError:
            raise
        except PocketuneError:
            pass  # told better where it is trained


def _forward(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """The forward pass of a module with supplied masks."""
    supplied = module.get_submodule(SUPPLIED)
    with Dropouts(lambda x, *_: supplied(x), always=not module.training), PlainOperators():
        return type(module).forward(module, *args, **kwargs)


def _keep(module: nn.Module) -> float:
    """The probability that a module keeps an element; 1 for one that is no dropout."""
    if type(module).forward in (nn.Dropout.forward, nn.Dropout2d.forward):
        return 1 - float(module.p)  # type: ignore[arg-type]
    if is_stochastic_depth(module):
        rate: Any = module.drop_prob if hasattr(module, "drop_prob") else module.p
        return 1 - float(rate or 0)
    return module.keep if isinstance(module, SuppliedDropout) else 1


def _together(module: nn.Module) -> int | None:
    """The first dimension that a dropout drops together with all behind it, if there is one."""
    if isinstance(module, SuppliedDropout):
        return module.together
    if is_stochastic_depth(module):
        return 1
    return 2 if isinstance(module, nn.Dropout2d) else None
