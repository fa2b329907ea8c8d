"""MobileTL: train the top blocks, with norms and activations that keep almost nothing."""

from dataclasses import dataclass, replace

from torch import nn

from pocketune.errors import PocketuneError, check_choice, check_truth, warn
from pocketune.layers import SignedReLU
from pocketune.methods.method import Method
from pocketune.methods.parts import (
    blocks_and_entries,
    fusion_and_classifier,
    needed_anatomy,
    split_at_first_trained,
    top_blocks,
)
from pocketune.methods.plan import Plan
from pocketune.methods.registry import register_method
from pocketune.methods.tinytl import TinyTL
from pocketune.networks import Factory, anatomy
from pocketune.networks.anatomy.blocks import Block, Layer
from pocketune.surgery import (
    masked_activations,
    parameters_under,
    signed_activations,
    signed_after,
)

NORMS = ("expand", "depthwise", "project", "all", "shift")
PATCHES = ("none", "with", "instead")


@register_method("mobiletl")
@dataclass(frozen=True)
class MobileTL(Method):
    """Train the top blocks with shift-only inner norms and activations of one bit an element.

    MobileTL: On-Device Transfer Learning with Inverted Residual Blocks (Chiang et al., AAAI
    2023). In each of the last `blocks`, all convolutions are trained. The norms after the expand
    and the depthwise convolution use their running statistics and train only their bias (shift),
    which keeps nothing for the backward pass. The norm after the projection is trained in full,
    with the batch's statistics. Activations are exact in the forward pass. In the backward pass
    the gradient passes where their input was not negative, which keeps one bit an element.
    Feature fusion, decode head and classifier are trained without approximation, and everything
    below the blocks is frozen.

    A ResNet's block has the same parts. `expand` is the norm of the first convolution on the main
    path, and in a bottleneck `depthwise` is that of the second one. The norms of the last
    convolution and of the shortcut's convolution, which are added, count as `project`. The
    activation after that sum belongs to the block. In other blocks of convolutions, such as those
    of GhostNet, the last dense convolutions and what follows them count as `project`.

    Attributes:
        blocks: How many blocks, counted from the classifier.
        norm: Which norm of a block is trained in full: `"expand"`, `"depthwise"`, `"project"`,
            `"all"`, or with `"shift"` none; the others train their bias.
        signed: Approximate the backward pass of activations; False keeps them exact.
        squeeze_excite: False removes the squeeze-excite modules of the trained blocks.
        hard_swish: False replaces the h-swish activations of the trained blocks by ReLUs.
        batch_statistics: False lets the norms that are trained in full use their running
            statistics, for batches of one image.
        patches: TinyTL's lite residual modules for the trained blocks: `"none"`, `"with"` to train
            both, or `"instead"` to freeze the blocks and train only the modules.
    """

    blocks: int = 3
    norm: str = "project"
    signed: bool = True
    squeeze_excite: bool = True
    hard_swish: bool = True
    batch_statistics: bool = True
    patches: str = "none"

    def __post_init__(self) -> None:
        check_choice(NORMS, norm=self.norm)
        check_choice(PATCHES, patches=self.patches)
        check_truth(signed=self.signed, squeeze_excite=self.squeeze_excite)
        check_truth(hard_swish=self.hard_swish, batch_statistics=self.batch_statistics)

    @property
    def frozen_bits(self) -> int:
        """8: frozen kernels are never written."""
        return 8

    def plan(self, network: nn.Module) -> Plan:
        """Blocks, feature fusion layer and classifier.

        Warns if the blocks have no activation to approximate.

        Raises:
            PocketuneError: The network has fewer blocks, one of them has no norm of the kind to
                train in full, or they cannot have patches.
        """
        body = anatomy(network)
        top = top_blocks(body, self.blocks)
        for block in top:
            _require_norms(block)
        full = frozenset(norm for block in top for norm in self._full_norms(block))
        norms = {layer.norm for block in top for layer in block.layers if layer.norm}
        removed = {} if self.squeeze_excite else _removed_squeeze_excite(top)
        frozen = {f"{norm}.weight" for norm in norms - full} | parameters_under(network, removed)
        trained = blocks_and_entries(network, top) - frozen
        if self.patches == "instead":
            trained = full = frozenset()
        patches = self._patches(network, top)
        behind = body.feature_fusion + body.decode_head
        behind_norms = {layer.norm for layer in behind if layer.norm}
        return Plan(
            trained | patches.trained | fusion_and_classifier(network, body),
            full | behind_norms if self.batch_statistics else frozenset(),
            replaced={**removed, **self._activations(network, top, behind)},
            branches=patches.branches,
        )

    def _patches(self, network: nn.Module, top: tuple[Block, ...]) -> Plan:
        """The plan of the lite residual modules of the trained blocks."""
        if self.patches == "none":
            return Plan()
        if any(block.is_bottleneck for block in top):
            raise PocketuneError(
                f"patches={self.patches!r} does not fit block {top[-1].name}: the modules of "
                "bottleneck blocks would be larger than the blocks; use patches='none'"
            )
        return TinyTL().modules(network, {block.name for block in top})

    def _full_norms(self, block: Block) -> set[str]:
        """Norms of a block that are trained in full, not only their bias."""
        wanted, parts = self.norm, {n.norm: block.part(n) for n in block.layers if n.norm}
        norms = {norm for norm, part in parts.items() if wanted in ("all", part)}
        if not norms and wanted != "shift":
            there = [*parts.values()]
            fitting = [norm for norm in NORMS if norm in there or (norm == "all" and there)]
            raise PocketuneError(
                f"norm={wanted!r} does not fit block {block.name}, which has no norm after such a "
                f"layer; choose {' or '.join([*fitting, 'shift'])}"
            )
        return norms

    def _activations(
        self, network: nn.Module, top: tuple[Block, ...], behind: tuple[Layer, ...]
    ) -> dict[str, Factory]:
        inside = {layer.activation for block in top for layer in block.layers if layer.activation}
        if not self.signed:
            replaced = masked_activations(network, inside)
        elif not (replaced := signed_activations(network, inside)):
            warn(
                f"the top blocks of {type(network).__name__} have no ReLU, ReLU6 or h-swish to "
                "approximate; their activations stay exact"
            )
        if not self.hard_swish:
            swish = [n for n in inside if isinstance(network.get_submodule(n), nn.Hardswish)]
            replaced |= dict.fromkeys(swish, self._relu)
        return {**replaced, **masked_activations(network, (layer.activation for layer in behind))}

    def _relu(self, _: nn.Module) -> nn.Module:
        return SignedReLU() if self.signed else nn.ReLU()


def _require_norms(block: Block) -> None:
    """Check that a block has a convolution with a batch norm.

    Raises:
        PocketuneError: It has none, as the blocks of transformers.
    """
    if not any(layer.norm for layer in block.layers):
        raise PocketuneError(
            f"MobileTL shifts the batch norms of convolutions, and block {block.name}, "
            f"{block.kind}, has none; use TopBlocks() or LoRA()"
        )


def _removed_squeeze_excite(top: tuple[Block, ...]) -> dict[str, Factory]:
    return {block.squeeze_excite: lambda _: nn.Identity() for block in top if block.squeeze_excite}


@register_method("signed")
@dataclass(frozen=True)
class SignedBackward(Method):
    """Approximate the gradient of activations by one bit an element, for another method.

    In every block that the gradient passes through, ReLU, ReLU6 and h-swish let it pass where
    their input was not negative (MobileTL, Chiang et al., AAAI 2023). The same holds for the stem
    if it is trained. Feature fusion and classifier stay exact. This trains nothing by itself: add
    it to a method, as in `TopBlocks(blocks=3) + SignedBackward()`.
    """

    def plan(self, network: nn.Module) -> Plan:  # noqa: ARG002
        """An empty plan: the changes depend on what the other methods train."""
        return Plan()

    def finalize(self, plan: Plan, network: nn.Module) -> Plan:
        """Replace the activations from the first trained part on.

        An activation that another method has replaced becomes signed as well, if possible.

        Raises:
            PocketuneError: The gradient passes no activation that can be approximated.
        """
        _, above = split_at_first_trained(plan, needed_anatomy(network, self))
        signed = signed_activations(network, (name for inside in above for name in inside))
        if not signed:
            raise PocketuneError(
                "SignedBackward() finds no ReLU, ReLU6 or h-swish in a block that the gradient "
                "passes through; leave it out, or train blocks, as in TopBlocks() + "
                "SignedBackward()"
            )
        others = {n: signed_after(make) for n, make in plan.replaced.items() if n in signed}
        return replace(plan, replaced={**signed, **plan.replaced, **others})
