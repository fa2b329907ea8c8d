"""The rules of a convention: what each class of layers costs.

To add a layer to a convention, decorate a function with the convention's rules:

    from pocketune.papers import tinytl

    @tinytl.RULES.rule(MyConv)
    def _my_conv(call: ModuleCall, masks: bool) -> LayerMemory:
        return LayerMemory(kept=..., temporary=...)

A layer that costs as much as another one needs no rule, in any convention:

    counts_as(MyReLU, nn.ReLU)

A rule covers the module itself: the modules that it calls have their own rules. A module that
calls others and has no parameters of its own needs no rule, and its additions and the like are
free. Every other module needs one. Subclasses inherit rules.
"""

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, ParamSpec, TypeVar

from torch import nn

from pocketune.errors import PocketuneError
from pocketune.layers import (
    FrozenBatchNorm2d,
    MaskedReLU,
    MaskedReLU6,
    SignedHardswish,
    SignedReLU,
    SignedReLU6,
)
from pocketune.papers.trace import ModuleCall

P = ParamSpec("P")  # a call, and further arguments of the convention
Cost = TypeVar("Cost")

_ALIASES: dict[type[nn.Module], type[nn.Module]] = {}


def counts_as(layer: type[nn.Module], other: type[nn.Module]) -> None:
    """Let every convention treat `layer` as `other`, unless it has a rule for `layer` itself.

    Raises:
        ValueError: The layer counts as another already.
    """
    if layer in _ALIASES:
        raise ValueError(f"{layer.__name__} counts as {_ALIASES[layer].__name__} already")
    _ALIASES[layer] = other


class Rules(Generic[P, Cost]):
    """The rules of one convention by class of layer.

    Args:
        convention: Name of the convention, for messages.
        base: Rules that apply to classes without a rule here.
    """

    def __init__(self, convention: str, base: "Rules[P, Cost] | None" = None) -> None:
        self.convention = convention
        inherited = base._rules.maps if base else []
        self._rules: ChainMap[type[nn.Module], Callable[P, Cost]] = ChainMap({}, *inherited)

    def rule(self, *layers: type[nn.Module]) -> Callable[[Callable[P, Cost]], Callable[P, Cost]]:
        """Decorator: the function is the rule for these classes and their subclasses."""

        def register(rule: Callable[P, Cost]) -> Callable[P, Cost]:
            if taken := [layer for layer in layers if layer in self._rules.maps[0]]:
                raise ValueError(f"{self.convention} has two rules for {taken[0].__name__}")
            self._rules.update(dict.fromkeys(layers, rule))
            return rule

        return register

    def of(self, calls: Iterable[ModuleCall]) -> Iterator[tuple[ModuleCall, Callable[P, Cost]]]:
        """Each call with its rule, without the calls of modules that only call others.

        Raises:
            PocketuneError: As `find`.
        """
        found = ((call, self.find(call)) for call in calls)
        return ((call, rule) for call, rule in found if rule is not None)

    def find(self, call: ModuleCall) -> Callable[P, Cost] | None:
        """The rule for a call; None for a module that only calls others.

        Raises:
            PocketuneError: Naming the layer that has no rule and needs one.
        """
        found = self._find(call.kind)
        parameters = next(call.module.parameters(recurse=False), None)
        if found is None and (call.is_leaf or parameters is not None):
            raise PocketuneError(
                f"the convention {self.convention} has no rule for {type(call.module).__name__} "
                f"at {call.path or 'the root'}; register one with its rules"
            )
        return found

    def _find(self, layer: type[nn.Module]) -> Callable[P, Cost] | None:
        for kind in layer.__mro__:
            if kind in self._rules:
                return self._rules[kind]
            if kind in _ALIASES:
                return self._find(_ALIASES[kind])
        return None


# Layers that compute almost nothing and keep nothing.
for _passive in (
    nn.Dropout,
    nn.Dropout2d,
    nn.Flatten,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool2d,
    nn.MaxPool2d,
    nn.AdaptiveMaxPool2d,
    nn.Upsample,
):
    counts_as(_passive, nn.Identity)
counts_as(nn.LeakyReLU, nn.ReLU)
counts_as(FrozenBatchNorm2d, nn.BatchNorm2d)
counts_as(MaskedReLU, nn.ReLU)
counts_as(MaskedReLU6, nn.ReLU6)
for _signed in (SignedReLU, SignedReLU6, SignedHardswish):
    counts_as(_signed, nn.ReLU)
