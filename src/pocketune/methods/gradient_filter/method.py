"""Gradient filtering: train the last convolutions with gradients averaged over patches."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from torch import nn

from pocketune.errors import (
    PocketuneError,
    check_positive,
    check_truth,
    counted,
    whole_number,
)
from pocketune.filtering import check_filter, filter_convolution
from pocketune.methods.gradient_filter.choice import measure_filters
from pocketune.methods.method import Method
from pocketune.methods.parts import classifier, convolution
from pocketune.methods.plan import Pass, Plan
from pocketune.methods.registry import register_method
from pocketune.networks import anatomy, set_about
from pocketune.networks.anatomy.anatomy import known_anatomy
from pocketune.networks.anatomy.modules import is_convolution
from pocketune.networks.copies import copy_network
from pocketune.networks.probe import input_shapes
from pocketune.surgery import BRANCH, chain_filters, parameters_under

TRAINED, AUTO = "trained", "auto"
USUAL_LAYERS = 4


def _chain(network: nn.Module) -> None:
    set_about(network, filter_chains=chain_filters(network))


CHAIN = Pass(_chain, late=True)
"""Filtered convolutions pass their gradients on in patches where possible."""


_log = logging.getLogger(__name__)


@register_method("gradfilter")
@dataclass(frozen=True)
class GradientFilter(Method):
    """Train the last convolutions with gradients averaged over patches, and the classifier.

    Efficient On-device Training via Gradient Filtering (Yang, Li and Marculescu, CVPR 2023). The
    forward pass is exact; see `FilteredConv2d` for the backward pass. Batch norms stay frozen.
    Consecutive layers pass their gradients on in patches where that is exact; `about` of the
    adapted network has their names in `filter_chains` (`pocketune.surgery.chain_filters`).

    In a sum with methods that train convolutions, `layers="trained"` filters those:
    `TopBlocks(3) + GradientFilter(layers="trained")`. `"auto"` filters those for which it
    pays in measurements on this machine (`measure_filters`). Both leave out squeeze-excite, whose
    maps have one pixel. They are resolved when a network is adapted; its `method` has the names of
    the layers. The reasons of `"auto"` are logged.

    In a network that classifies pixels, layers are counted from the last one of the decode head.
    `GradientFilter({"decode_head.bottleneck.0": 4}, layers=5)` trains five of them and filters one,
    as the paper does in PSPNet; `GradientFilter({}, layers=5)` trains them with exact gradients.

    Attributes:
        patch: Rows and columns of a patch of a convolution's output; or those of each filtered
            convolution by its name, which leaves the other `layers` exact.
        layers: How many convolutions, counted from the classifier without those in shortcuts; or
            names of convolutions; or `"trained"` or `"auto"`. None for the names in `patch`, or
            for 4.
        alignment: `"natural"`, `"paper"` or `"reference"`: see `FilteredConv2d`.
        bits: Bits of the kept inputs and of the averaged gradients, 8 or 32.
        batch: Images of a step, for the measurements of `"auto"`.
        size: Height and width of the images, for the measurements of `"auto"`.
        chain: False lets every layer pass on its whole gradient, with the same values. This is for
            forward hooks and reentrant checkpoints, which see a chain's maps as `PooledMap`s.
    """

    patch: int | Mapping[str, int] = 2
    layers: int | str | tuple[str, ...] | None = None
    alignment: str = "natural"
    bits: int = 32
    batch: int = 8
    size: int = 224
    chain: bool = True

    def __post_init__(self) -> None:
        patches = dict(self.patch) if isinstance(self.patch, Mapping) else None
        for patch in (self.patch,) if patches is None else (1, *patches.values()):
            check_filter(patch, self.alignment, self.bits)
        check_positive(batch=self.batch, size=self.size)
        check_truth(chain=self.chain)
        layers: Any = self.layers
        if layers is None:
            layers = USUAL_LAYERS if patches is None else tuple(patches)
        if isinstance(layers, list):  # from JSON
            layers = tuple(layers)
        object.__setattr__(self, "layers", layers)
        named = isinstance(layers, tuple) and all(isinstance(name, str) for name in layers)
        if not (named or whole_number(layers) is not None or layers in (TRAINED, AUTO)):
            raise PocketuneError(
                f"layers={layers!r} must be a number, a list of names, 'trained' or 'auto'"
            )
        if patches is not None:
            if layers == AUTO:
                raise PocketuneError(
                    "layers='auto' measures one patch for all layers; give a number"
                )
            object.__setattr__(self, "patch", patches)

    def plan(self, network: nn.Module) -> Plan:
        """The classifier, and the layers as far as they are known before `resolve`.

        Raises:
            PocketuneError: The network has fewer convolutions or no such layer, the layer cannot
                be filtered, or `patch` has the name of a layer that is not among `layers`.
        """
        names = self._names(network)
        trained = set(classifier(network))
        for name in names:
            trained.update(f"{name}.{parameter}" for parameter in _parameters(network, name))
        replaced = {
            name: partial(filter_convolution, patch=patch, alignment=self.alignment, bits=self.bits)
            for name, patch in self._patches(names).items()
        }
        passes = (CHAIN,) if self.chain else ()
        return Plan(frozenset(trained), replaced=replaced, passes=passes)

    def __hash__(self) -> int:
        patch = self.patch
        named = frozenset(patch.items()) if isinstance(patch, Mapping) else patch
        rest = (getattr(self, field.name) for field in fields(self) if field.name != "patch")
        return hash((named, *rest))

    def finalize(self, plan: Plan, network: nn.Module) -> Plan:
        """With `chain=False`, filters are not chained, also those of other methods.

        Raises:
            PocketuneError: There are no layers, and nothing but the classifier is trained.
        """
        if self.layers == () and plan.trained <= classifier(network):
            raise PocketuneError(
                f"{self} names no layers, and would train the classifier alone; name convolutions, "
                "give their number, or use LastLayer()"
            )
        if self.chain:
            return plan
        return replace(plan, passes=tuple(step for step in plan.passes if step != CHAIN))

    def resolve(self, network: nn.Module, plan: Plan) -> GradientFilter:
        """Replace `"trained"` and `"auto"` by the names of layers.

        Raises:
            PocketuneError: No convolution is trained.
        """
        if self.layers not in (TRAINED, AUTO):
            return self
        adapted = copy_network(network)
        plan.apply(adapted)
        inside = parameters_under(adapted, _squeeze_excites(network))
        names = tuple(_trained_convolutions(adapted, inside, self.size))
        if not names:
            remedy = (
                "add a method, as in TopBlocks() + GradientFilter(layers='trained'), or give a "
                "number of layers"
                if plan.trained <= classifier(network)
                else "for other layers there is LowRankBackward()"
            )
            raise PocketuneError(
                "layers='trained' and 'auto' filter what other methods train, and no convolution "
                f"is trained: {remedy}"
            )
        if isinstance(self.patch, Mapping):
            return replace(self, layers=tuple(self._patches(names)))
        if self.layers == AUTO:
            choices = measure_filters(
                adapted,
                names,
                patch=self.patch,
                alignment=self.alignment,
                bits=self.bits,
                batch=self.batch,
                size=self.size,
            )
            for choice in choices:
                _log.info("%s", choice)
            names = tuple(choice.layer for choice in choices if choice.filtered)
        return replace(self, layers=names)

    def _patches(self, names: tuple[str, ...]) -> dict[str, int]:
        """The patch of each filtered layer, of these layers that are trained."""
        if not isinstance(self.patch, Mapping):
            return dict.fromkeys(names, self.patch)
        if names and (others := [name for name in self.patch if name not in names]):
            raise PocketuneError(
                f"patch has the layer {others[0]}, which is not among the trained ones: "
                f"{', '.join(names)}; leave it out, or add it to layers"
            )
        return {name: self.patch[name] for name in names if name in self.patch}

    def _names(self, network: nn.Module) -> tuple[str, ...]:
        if isinstance(self.layers, tuple):
            return self.layers
        if self.layers is None or isinstance(self.layers, str):
            return ()
        convolutions = [layer.conv for layer in anatomy(network).main]
        count = len(convolutions)
        if not 1 <= self.layers <= count:
            raise PocketuneError(
                f"layers={self.layers} does not fit a network of {counted(count, 'convolution')}; "
                f"give {'1' if count == 1 else f'a whole number from 1 to {count}'}, or names"
            )
        return tuple(convolutions[-self.layers :])


def _parameters(network: nn.Module, name: str) -> list[str]:
    """Names of a convolution's own parameters.

    Raises:
        PocketuneError: The network has no such layer, or it is not a convolution.
    """
    if f".{BRANCH}." in name:  # another method adds it
        return ["weight"]
    return [parameter for parameter, _ in convolution(network, name).named_parameters()]


def _trained_convolutions(network: nn.Module, exact: frozenset[str], size: int) -> list[str]:
    """Trained convolutions except squeeze-excite, whose maps of one pixel leave nothing to save.

    Args:
        network: Adapted, without filters.
        exact: Names of the parameters of known squeeze-excite modules.
        size: Side of the images in pixels.
    """
    trained = {name for name, p in network.named_parameters() if p.requires_grad}
    names = [
        name
        for name, module in network.named_modules()
        if is_convolution(module) and f"{name}.weight" in trained - exact
    ]
    try:
        shapes = input_shapes(network, names, (2, 3, size, size))
    except Exception:  # the network's own code may raise anything without values
        return names
    return [name for name in names if set(shapes.get(name, ())[2:]) != {1}]


def _squeeze_excites(network: nn.Module) -> list[str]:
    body = known_anatomy(network)
    blocks = body.blocks if body else ()
    return [block.squeeze_excite for block in blocks if block.squeeze_excite]
