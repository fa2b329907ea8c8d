"""Dynamic activation pruning: trained layers keep only their largest activations."""

import math
from dataclasses import dataclass, replace
from functools import partial

from torch import nn

from pocketune.errors import PocketuneError
from pocketune.layers import PrunedBatchNorm2d, PrunedConv2d, StandardizedConv2d
from pocketune.layers.conv import computes_kernel, is_plain
from pocketune.layers.pruned_activations import estimate_dimensions
from pocketune.methods.method import Method
from pocketune.methods.plan import Pass, Plan
from pocketune.methods.registry import register_method
from pocketune.networks import Factory, anatomy
from pocketune.networks.anatomy.modules import main_modules
from pocketune.surgery import mask_activations

MASKS = Pass(mask_activations)
"""Exact activations that keep one bit, except where a method has replaced them."""


@register_method("actprune")
@dataclass(frozen=True)
class ActivationPruning(Method):
    """Drop the activations of smallest magnitude, for another method that trains convolutions.

    The rule is that of Dynamic Sparse Graph (Liu et al., Dynamic Sparse Graph for Efficient Deep
    Learning, ICLR 2019, arXiv 1810.00859) with exact selection, as TinyTL compares with it in its
    figure 4. Of each image and layer, the share `ratio` of the elements with the smallest magnitude
    is set to zero:

    * in the output of a trained convolution and, at the same places, after its batch norm (the
      double mask, section 2.3),
    * in the input of a trained convolution. After a norm that is pruned and a ReLU, these elements
      are zero already, so that this changes only sums of blocks.

    Gradients are those of the network with these zeros, which predicts with them, too. What is kept
    are the survivors' values and one bit an element; ReLU and ReLU6 keep one bit. The paper selects
    the largest elements before a ReLU that precedes the norm. Here the norm comes first, as in
    pretrained networks, where an element may matter at either sign.

    The convolution that reads the image, squeeze-excite modules and the classifier are exact, and
    so is what keeps nothing: frozen convolutions and norms on running statistics. This trains
    nothing by itself: add it to a method, as in `FullFineTune() + ActivationPruning(ratio=0.5)`.

    Attributes:
        ratio: share to drop, from 0 to less than 1. With 0, only the activations change, which keep
            one bit an element.
        forward: False leaves the forward pass exact and drops only what is kept. The gradients of
            kernels and scales are then approximate.
        epsilon: error of the paper's estimate, above 0 and below 1.5, which selects the outputs of
            convolutions by random projections (section 2.2); 0.5 there. It is used where it has
            fewer dimensions than the kernels have weights, and outputs are selected exactly
            elsewhere. None selects exactly everywhere.
    """

    ratio: float = 0.5
    forward: bool = True
    epsilon: float | None = None

    def __post_init__(self) -> None:
        number = isinstance(self.ratio, (int, float)) and not isinstance(self.ratio, bool)
        if not number or not math.isfinite(self.ratio) or not 0 <= self.ratio < 1:
            raise PocketuneError(f"ratio={self.ratio!r} must be a number from 0 to less than 1")
        if self.epsilon is None:
            return
        if isinstance(self.epsilon, (bool, str)) or not 0 < self.epsilon < 1.5:
            raise PocketuneError(f"epsilon={self.epsilon!r} must be a number between 0 and 1.5")
        if not self.forward:
            raise PocketuneError(
                "epsilon selects what the forward pass computes with; leave out epsilon or forward"
            )

    def plan(self, network: nn.Module) -> Plan:  # noqa: ARG002
        """An empty plan: the changes depend on what the other methods train."""
        return Plan(frozenset(), frozenset(), passes=(MASKS,))

    def finalize(self, plan: Plan, network: nn.Module) -> Plan:
        """Replace the trained convolutions and norms that no other method has replaced.

        Raises:
            PocketuneError: there is none, as in a network with standardized kernels.
        """
        if not plan.trained:  # final_plan refuses it
            return plan
        pruned = self._layers(plan, network)
        if not pruned and any(isinstance(m, StandardizedConv2d) for _, m in main_modules(network)):
            raise PocketuneError(
                f"{self} drops what ordinary convolutions and batch norms keep, and this network "
                "has standardized kernels; create it with norm='batch' and standardized=False"
            )
        if not pruned:
            raise PocketuneError(
                f"{self} finds no trained convolution or batch norm that keeps its input; leave it "
                "out, or train some, as in FullFineTune() + ActivationPruning()"
            )
        return replace(plan, replaced={**plan.replaced, **pruned}) if self.ratio else plan

    def _layers(self, plan: Plan, network: nn.Module) -> dict[str, Factory]:
        """Factories of the pruned layers, by name."""
        modules = dict(network.named_modules())
        taken = tuple(f"{name}." for name in plan.replaced)
        layers = anatomy(network).layers
        convolutions = {
            layer.conv
            for layer in layers[1:]  # the first one reads the image
            if f"{layer.conv}.weight" in plan.trained and _can_prune(modules[layer.conv])
        }
        norms = {
            layer.norm
            for layer in layers
            if layer.norm in plan.batch_norms and type(modules[layer.norm]) is nn.BatchNorm2d
        }
        names = [n for n in (*convolutions, *norms) if n and not f"{n}.".startswith(taken)]
        before = {layer.conv for layer in layers if layer.norm in names}
        return {
            name: partial(
                _pruned,
                ratio=self.ratio,
                forward=self.forward,
                epsilon=self.epsilon if name in before else None,
            )
            for name in names
        }


def _can_prune(conv: nn.Module) -> bool:
    return (
        is_plain(conv)
        and not computes_kernel(conv)
        and conv.padding_mode == "zeros"
        and not isinstance(conv.padding, str)
    )


def _pruned(layer: nn.Module, *, ratio: float, forward: bool, epsilon: float | None) -> nn.Module:
    if isinstance(layer, nn.BatchNorm2d):
        return PrunedBatchNorm2d.from_batch_norm(layer, ratio=ratio, forward=forward)
    assert isinstance(layer, nn.Conv2d)
    dimensions = None if epsilon is None else _dimensions(layer, epsilon)
    made = PrunedConv2d.like(layer, ratio=ratio, forward=forward, dimensions=dimensions)
    made.weight = layer.weight
    if made.projection is not None:
        made.projection = made.projection.to(layer.weight)
    return made


def _dimensions(conv: nn.Conv2d, epsilon: float) -> int | None:
    """Dimensions of the projection; None where they are no fewer than a kernel's weights."""
    dimensions = estimate_dimensions(conv.out_channels, epsilon)
    fewer = conv.groups == 1 and dimensions < conv.weight[0].numel()
    return dimensions if fewer else None
