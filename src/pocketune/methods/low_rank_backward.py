"""LBP-WHT: trained linear layers compute their gradients on a few Walsh bases of the tokens."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from torch import nn

from pocketune.errors import PocketuneError, check_truth
from pocketune.layers import LowRankConv2d, LowRankLinear
from pocketune.layers.conv import computes_kernel, is_plain
from pocketune.layers.low_rank_backward import check_bases
from pocketune.methods.method import Method
from pocketune.methods.parts import (
    called_modules,
    needed_anatomy,
    planned_branches,
    split_at_first_trained,
)
from pocketune.methods.plan import Plan
from pocketune.methods.registry import register_method
from pocketune.networks import Factory
from pocketune.networks.anatomy.modules import is_pointwise
from pocketune.networks.anatomy.output import classifier_layers


@register_method("lbpwht")
@dataclass(frozen=True)
class LowRankBackward(Method):
    """Compute gradients of another method's linear layers and 1x1 convolutions in low rank.

    LBP-WHT: Efficient Low-rank Backpropagation for Vision Transformer Adaptation (Yang et al.,
    NeurIPS 2023). The forward pass is exact. The input of a layer is kept as its sums with a few
    Walsh functions of the token grid, those of few sign changes, and both products of the backward
    pass are of that rank; see `LowRankLinear`. Gradient filtering is the case of a single base.

    Every trained linear layer on tokens and every trained 1x1 convolution with stride 1 works so,
    also those that LoRA adds, except the classifier. This trains nothing by itself: add it to a
    method, as in `TopBlocks(3) + LowRankBackward()`.

    Attributes:
        order: Side of a patch in tokens, a power of two; on a smaller grid, the next power of two.
        rank: Bases with fewer than so many sign changes, of rows and columns together, are kept:
            `rank (rank + 1) / 2` of `order`^2 while rank is at most order.
        frozen: Whether gradients pass through frozen linear layers in low rank, too. It saves
            computation and no memory: a frozen linear layer keeps no input.
    """

    order: int = 8
    rank: int = 6
    frozen: bool = False

    def __post_init__(self) -> None:
        check_bases(self.order, self.rank)
        check_truth(frozen=self.frozen)

    def plan(self, network: nn.Module) -> Plan:  # noqa: ARG002
        """An empty plan: the changes depend on what the other methods train."""
        return Plan()

    def finalize(self, plan: Plan, network: nn.Module) -> Plan:
        """Replace the layers that no other method has replaced.

        Raises:
            PocketuneError: There is none.
        """
        taken = tuple(f"{name}." for name in {*plan.replaced, *self._below(plan, network)})
        found: dict[str, Factory] = {
            name: self._layer
            for name, module in self._candidates(plan, network)
            if _has_low_rank(module) and not f"{name}.".startswith(taken)
        }
        if not found:
            raise PocketuneError(
                f"{self} finds no trained linear layer or 1x1 convolution before the classifier; "
                "leave it out, or train some, as in FullFineTune() + LowRankBackward()"
            )
        return replace(plan, replaced={**plan.replaced, **found})

    def _below(self, plan: Plan, network: nn.Module) -> set[str]:
        """The modules that no gradient passes; without `frozen`, none of them matters."""
        if not self.frozen:
            return set()
        below, _ = split_at_first_trained(plan, needed_anatomy(network, self))
        return {name for part in below for name in part if name}

    def _candidates(self, plan: Plan, network: nn.Module) -> Iterator[tuple[str, nn.Module]]:
        """Layers whose gradients are computed, those of side branches included, by path."""
        heads = classifier_layers(network)
        for name, module in called_modules(network):
            passes = self.frozen and isinstance(module, nn.Linear)
            if name not in heads and (passes or f"{name}.weight" in plan.trained):
                yield name, module
        for path, branch in planned_branches(network, plan.branches).items():
            for name, module in branch.named_modules(prefix=path):
                if f"{name}.weight" in plan.trained:
                    yield name, module

    def _layer(self, layer: nn.Linear | nn.Conv2d) -> nn.Module:
        if isinstance(layer, nn.Linear):
            return LowRankLinear.from_linear(layer, self.order, self.rank)
        return LowRankConv2d.from_pointwise(layer, self.order, self.rank)


def _has_low_rank(module: nn.Module) -> bool:
    if type(module) is nn.Linear:
        return True
    if not is_plain(module) or computes_kernel(module) or not is_pointwise(module):
        return False
    return tuple(module.stride) == (1, 1) and tuple(module.padding) == (0, 0)
