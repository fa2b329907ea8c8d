"""Dropout whose mask is an input, so that a graph without random numbers can train with it.

Stochastic depth (Huang et al., 2016) is a dropout of whole images in a residual branch. timm's
module for it is called DropPath, torchvision's StochasticDepth.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from pocketune.kit.manifest import MaskSpec
from pocketune.networks.copies import copy_shapes
from pocketune.networks.probe import input_shapes, probing
from pocketune.networks.shapes import RememberedShapes

SUPPLIED = "supplied_dropouts"
"""Name of the modules that stand for the calls of `functional.dropout` in a module."""


class SuppliedDropout(nn.Module):
    """Multiplies by `mask` in training, and does nothing in evaluation.

    `mask` is a buffer that state dicts leave out. It holds ones until it is filled: with 0 for an
    element that is dropped, and 1 / `keep` for one that is kept.

    Args:
        keep: Probability that an element is kept, in (0, 1).
        shape: Of the mask, the batch included: that of the input, or 1 in the dimensions that are
            dropped together.
        together: The first dimension that is dropped together with all behind it: 2 for whole
            maps, as `nn.Dropout2d` does, 1 for whole images; None if each element is by itself.
    """

    mask: Tensor

    def __init__(self, keep: float, shape: tuple[int, ...], *, together: int | None = None) -> None:
        super().__init__()
        self.keep = keep
        self.together = together
        self.register_buffer("mask", torch.ones(shape), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(N, ...) -> the same shape; in training, the batch is that of the mask."""
        return x * self.mask if self.training else x

    def extra_repr(self) -> str:
        """Keep and shape, for `repr`."""
        return f"keep={self.keep}, shape={tuple(self.mask.shape)}"


def supply_masks(network: nn.Module, batch: int, size: int) -> tuple[MaskSpec, ...]:
    """Replace each dropout that drops something by a `SuppliedDropout`, in place.

    A module whose forward pass calls `functional.dropout` gets one for each call.

    Args:
        network: Takes (batch, 3, size, size). A `SuppliedDropout` in it gets a new mask of the
            right shape, so calling this twice is safe.
        batch: Images of a training step.
        size: Height and width of the images, in pixels.

    Returns:
        The masks, by the names of their buffers, in the order of `network.named_modules()`.
    """
    specs = _supply_modules(network, (batch, 3, size, size))
    if _supply_functions(network, (batch, 3, size, size)):
        specs = _supply_modules(network, (batch, 3, size, size))
    return specs


def _supply_modules(network: nn.Module, images: tuple[int, ...]) -> tuple[MaskSpec, ...]:
    keep = {name: k for name, m in network.named_modules() if (k := _keep(m)) < 1}
    shapes = input_shapes(network, keep, images) if keep else {}
    used = [name for name in keep if name in shapes]
    for name in used:
        dropout = network.get_submodule(name)
        together = _together(dropout)
        if together is not None:
            shape = shapes[name]
            shapes[name] = (*shape[:together], *(1,) * (len(shape) - together))
        supplied = SuppliedDropout(keep[name], shapes[name], together=together)
        supplied.train(dropout.training)
        network.set_submodule(name, supplied, strict=True)
    return tuple(MaskSpec(f"{name}.mask", shapes[name], keep[name]) for name in used)


def _supply_functions(network: nn.Module, images: tuple[int, ...]) -> bool:
    """Let calls of `functional.dropout` run modules instead, in place; whether there are any.

    Modules that drop have been replaced before, because they call the function too.
    """
    if not any(map(_names_dropout, {type(module) for module in network.modules()})):
        return False
    found: dict[str, list[float]] = {}
    running: list[str] = []

    def note(_: Tensor, rate: float) -> None:
        found.setdefault(running[-1], []).append(rate)

    def enter(path: str, _: nn.Module, __: list[Tensor]) -> None:
        running.append(path)

    def leave(_: str, __: nn.Module, ___: list[Tensor]) -> None:
        running.pop()

    copied = copy_shapes(network)
    with (
        probing(copied, enter=enter, leave=leave),
        RememberedShapes(),
        _Dropouts(note),
    ):
        copied(torch.empty(images, device="meta"))
    for path, rates in found.items():
        module = network.get_submodule(path)
        made = nn.ModuleList(SuppliedDropout(1 - rate, ()) for rate in rates)
        module.add_module(SUPPLIED, made.train(module.training))
        module.forward = partial(_forward, module)
    return bool(found)


def _names_dropout(kind: type[nn.Module]) -> bool:
    """Whether a method of a class may call a dropout; finding out by a run takes longer."""
    own = (base for base in kind.__mro__ if not base.__module__.startswith("torch."))
    methods = (each for base in own for each in vars(base).values())
    codes = (getattr(each, "__code__", None) for each in methods)
    return any(code is not None and "dropout" in code.co_names for code in codes)


def _forward(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """The forward pass of a module with supplied masks."""
    calls: Iterator[nn.Module] = iter(module.get_submodule(SUPPLIED).children())
    with _Dropouts(lambda x, _: next(calls)(x)):
        return type(module).forward(module, *args, **kwargs)


class _Dropouts(TorchFunctionMode):
    """Passes the tensor and the rate of each call of `functional.dropout` with a rate above 0.

    What `instead` returns is the call's result, unless it is None. Calls count in evaluation too,
    where they drop nothing.
    """

    def __init__(self, instead: Callable[[Tensor, float], Tensor | None]) -> None:
        super().__init__()
        self._instead = instead

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run an operator, or what stands for a dropout."""
        kwargs = kwargs or {}
        if func is F.dropout:
            x, rate = _arguments(*args, **kwargs)
            if rate > 0 and (result := self._instead(x, rate)) is not None:
                return result
        return func(*args, **kwargs)


def _arguments(
    input: Tensor,
    p: float = 0.5,
    training: bool = True,  # noqa: ARG001
    inplace: bool = False,  # noqa: ARG001
) -> tuple[Tensor, float]:
    """The tensor and the rate among the arguments of `functional.dropout`."""
    return input, p


def _keep(module: nn.Module) -> float:
    if isinstance(module, (nn.Dropout, nn.Dropout2d)):
        return 1 - module.p
    if _is_stochastic_depth(module):
        rate: Any = module.drop_prob if hasattr(module, "drop_prob") else module.p
        return 1 - float(rate or 0)
    return module.keep if isinstance(module, SuppliedDropout) else 1


def _together(module: nn.Module) -> int | None:
    if isinstance(module, SuppliedDropout):
        return module.together
    if _is_stochastic_depth(module):
        return 1
    return 2 if isinstance(module, nn.Dropout2d) else None


def _is_stochastic_depth(module: nn.Module) -> bool:
    """Of each image by itself, and scaled so that the mean stays."""
    kind = type(module).__name__
    timms = kind == "DropPath" and getattr(module, "scale_by_keep", True) is True
    return timms or (kind == "StochasticDepth" and getattr(module, "mode", "") == "row")
