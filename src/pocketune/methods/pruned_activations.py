"""Dynamic activation pruning: trained layers keep only their largest activations."""

from dataclasses import dataclass, replace
from functools import partial

from torch import nn

from pocketune.errors import PocketuneError, check_truth, real_number
from pocketune.layers import (
    PrunedBatchNorm2d,
    PrunedConv2d,
    PrunedStandardizedConv2d,
    StandardizedConv2d,
)
from pocketune.layers.activation import RECTIFIERS
from pocketune.layers.conv import computes_kernel, is_plain, pads_in_numbers
from pocketune.layers.pruned_activations import estimate_dimensions
from pocketune.methods.method import Method
from pocketune.methods.parts import MASKS, needed_anatomy
from pocketune.methods.plan import Pass, Plan
from pocketune.methods.registry import register_method
from pocketune.networks import Factory, anatomy


def _pass_estimates(network: nn.Module) -> None:
    """Let each norm select by the estimate of the convolution before it, if that makes one."""
    modules = dict(network.named_modules())
    for layer in anatomy(network).layers:
        conv, norm = modules[layer.conv], modules.get(layer.norm or "")
        if not isinstance(conv, PrunedConv2d) or conv.projection is None:
            continue
        if isinstance(norm, PrunedBatchNorm2d):
            conv.estimate_for(norm)


ESTIMATES = Pass(_pass_estimates)
"""Norms read the estimates of convolutions."""


@register_method("actprune")
@dataclass(frozen=True)
class ActivationPruning(Method):
    """Drop the activations of smallest magnitude, for another method that trains convolutions.

    The rule is that of Dynamic Sparse Graph (Liu et al., Dynamic Sparse Graph for Efficient Deep
    Learning, ICLR 2019, arXiv 1810.00859) with exact selection, as TinyTL compares with it in its
    figure 4. Of each image and layer, the share `ratio` of the elements with the smallest magnitude
    is set to zero:

    * after a trained convolution and its batch norm; negative elements count as zeros if a ReLU
      follows,
    * in the input of a trained convolution. After a norm that is pruned and a ReLU, these elements
      are zero already, so that this changes only sums of blocks.

    The gradient reaches the survivors alone, and the network predicts with the zeros, too. What is
    kept are the survivors' values and one bit an element; ReLU and ReLU6 keep one bit. The paper
    also masks the input of the norm (section 2.3) and has the ReLU before the norm. Pretrained
    networks have it behind, where an element that is zero before the norm is not after it.

    The convolution that reads the image, squeeze-excite modules and the classifier are exact, and
    so is what keeps nothing: frozen convolutions and norms on running statistics. This trains
    nothing by itself: add it to a method, as in `FullFineTune() + ActivationPruning(ratio=0.5)`.

    Attributes:
        ratio: Share to drop, from 0 to less than 1. With 0, only the activations change, which keep
            one bit an element.
        forward: False leaves the forward pass exact and drops only what is kept. The gradients of
            kernels and scales are then approximate.
        epsilon: Error of the paper's estimate, above 0 and below 1.5, which selects the outputs of
            norms from random projections of the convolutions before them (section 2.2); 0.5 there.
            It is used where it has fewer dimensions than the kernels have weights, and elements
            are selected exactly elsewhere. None selects exactly everywhere.
    """

    ratio: float = 0.5
    forward: bool = True
    epsilon: float | None = None

    def __post_init__(self) -> None:
        ratio = real_number(self.ratio)
        if ratio is None or not 0 <= ratio < 1:
            raise PocketuneError(f"ratio={self.ratio!r} must be a number from 0 to less than 1")
        check_truth(forward=self.forward)
        if self.epsilon is None:
            return
        epsilon = real_number(self.epsilon)
        if epsilon is None or not 0 < epsilon < 1.5:
            raise PocketuneError(f"epsilon={self.epsilon!r} must be a number between 0 and 1.5")
        if not self.forward:
            raise PocketuneError(
                "epsilon selects what the forward pass computes with; leave out epsilon or forward"
            )

    def plan(self, network: nn.Module) -> Plan:  # noqa: ARG002
        """An empty plan: the changes depend on what the other methods train."""
        return Plan(passes=(MASKS,))

    def finalize(self, plan: Plan, network: nn.Module) -> Plan:
        """Replace the trained convolutions and norms that no other method has replaced.

        Raises:
            PocketuneError: There is none, as in a network without blocks.
        """
        pruned = self._layers(plan, network)
        if not pruned:
            raise PocketuneError(
                f"{self} finds no trained convolution or batch norm that keeps its input; leave it "
                "out, or train some, as in FullFineTune() + ActivationPruning()"
            )
        if not self.ratio:
            return plan
        passes = plan.passes if self.epsilon is None else (*plan.passes, ESTIMATES)
        return replace(plan, replaced={**plan.replaced, **pruned}, passes=passes)

    def _layers(self, plan: Plan, network: nn.Module) -> dict[str, Factory]:
        """Factories of the pruned layers, by name."""
        modules = dict(network.named_modules())
        taken = tuple(f"{name}." for name in plan.replaced)
        body = needed_anatomy(network, self)
        ends = {block.main[-1] for block in body.blocks if block.is_row}
        found: dict[str, Factory] = {}
        for layer in body.layers:
            conv, norm = layer.conv, layer.norm
            prunes_norm = norm in plan.batch_norms and _can_prune_norm(modules[norm])
            trains_conv = f"{conv}.weight" in plan.trained and _can_prune(modules[conv])
            if trains_conv and layer != body.layers[0]:  # the first one reads the image
                epsilon = self.epsilon if prunes_norm else None
                found[conv] = partial(self._convolution, epsilon=epsilon)
            if norm and prunes_norm:
                activation = type(modules[layer.activation]) if layer.activation else None
                # the ends of a block's two paths are added before an activation
                rectified = activation in RECTIFIERS and layer not in ends and not layer.in_shortcut
                found[norm] = partial(self._norm, rectified=rectified)
        return {name: make for name, make in found.items() if not f"{name}.".startswith(taken)}

    def _convolution(self, conv: nn.Conv2d, *, epsilon: float | None) -> nn.Module:
        dimensions = None if epsilon is None else _dimensions(conv, epsilon)
        standardizes = isinstance(conv, StandardizedConv2d)
        made = (PrunedStandardizedConv2d if standardizes else PrunedConv2d).like(
            conv, ratio=self.ratio, forward=self.forward, dimensions=dimensions
        )
        made.weight = conv.weight
        if made.projection is not None:
            made.projection = made.projection.to(conv.weight)
        return made

    def _norm(self, norm: nn.BatchNorm2d, *, rectified: bool) -> nn.Module:
        return PrunedBatchNorm2d.from_batch_norm(
            norm, ratio=self.ratio, forward=self.forward, rectified=rectified
        )


def _can_prune_norm(norm: nn.Module) -> bool:
    return type(norm) is nn.BatchNorm2d and norm.affine and norm.track_running_stats


def _can_prune(conv: nn.Module) -> bool:
    if not (is_plain(conv) or type(conv) is StandardizedConv2d):
        return False
    return not computes_kernel(conv) and pads_in_numbers(conv)


def _dimensions(conv: nn.Conv2d, epsilon: float) -> int | None:
    """Dimensions of the projection; None where they are no fewer than a kernel's weights."""
    dimensions = estimate_dimensions(conv.out_channels, epsilon)
    fewer = conv.groups == 1 and dimensions < conv.weight[0].numel()
    return dimensions if fewer else None
