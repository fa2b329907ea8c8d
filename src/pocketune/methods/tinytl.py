"""TinyTL: frozen weights, trained biases and small side branches of the blocks."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import nn

from pocketune.errors import PocketuneError, check_choice, check_positive, check_truth
from pocketune.layers import LiteResidual, standardize_convolution, standardized
from pocketune.layers.side_branch import TABLE_SIDE
from pocketune.methods.method import Method
from pocketune.methods.parts import (
    MASKS,
    biases,
    block_maps,
    parameters_of_branches,
    planned_branches,
    require_channels_first,
)
from pocketune.methods.plan import Plan
from pocketune.methods.registry import register_method
from pocketune.networks import Factory, about, anatomy, set_about
from pocketune.networks.anatomy.blocks import Block
from pocketune.networks.copies import copy_network
from pocketune.surgery import (
    BRANCH,
    add_branches,
    group_norms,
    kernels_before_norms,
    parameters_under,
)

NORMS = ("batch", "group")
_LARGEST = 3
"""Most values in lite residual modules, as a multiple of the network's own: they have a third of
MobileNetV2's, and eight times ResNet-50's."""


@register_method("tinytl")
@dataclass(frozen=True)
class TinyTL(Method):
    """Train biases and lite residual modules of the blocks; weights stay frozen.

    TinyTL: Reduce Activations, Not Trainable Parameters for Efficient On-Device Learning (Cai,
    Gan, Zhu and Han, NeurIPS 2020): TinyTL-B is `TinyTL(lite_residual=False)`, TinyTL-L
    `TinyTL(bias=False)`, TinyTL-L+B `TinyTL()`. The classifier is trained in each.

    A frozen layer does not need its input, so little but one bit per activation is kept for the
    backward pass. Every image is normalized by itself, so a batch may hold a single image.

    Attributes:
        bias: Train every bias, including those of norms.
        lite_residual: Attach a `LiteResidual` to every block except the first, and train it. In
            L+B the bias of its last norm is frozen, since the last bias of the block does the
            same. Modules that the network already has are kept.
        norm: What becomes of batch norms: `"batch"` keeps them, with frozen statistics; `"group"`
            makes them the paper's group norms, and standardizes kernels. A network that was created
            and pretrained with these has no batch norms and needs no option. Group norm keeps its
            input for the backward pass, frozen batch norm keeps nothing.
        kernel: Largest kernel of the lite residual modules, odd. On the 7 x 7 maps of the last
            stage, 5 becomes 3, as in the public code and its parameter counts; the paper says 5.
        groups: Groups of the first convolution of these modules.
        head: Also train the kernel and the last shift of the feature fusion layer, the 1x1
            convolution before pooling, as the rows with a dagger of the paper's table 2.
    """

    bias: bool = True
    lite_residual: bool = True
    norm: str = "batch"
    kernel: int = 5
    groups: int = 2
    head: bool = False

    def __post_init__(self) -> None:
        check_truth(bias=self.bias, lite_residual=self.lite_residual, head=self.head)
        if not (self.bias or self.lite_residual):
            raise PocketuneError(
                "TinyTL(bias=False, lite_residual=False) trains only the classifier; use "
                "LastLayer() for that"
            )
        check_choice(NORMS, norm=self.norm)
        check_positive(kernel=self.kernel, groups=self.groups)
        if self.kernel % 2 == 0:
            raise PocketuneError(f"kernel={self.kernel!r} must be odd")

    @property
    def frozen_bits(self) -> int:
        """8: frozen kernels are never written."""
        return 8

    def plan(self, network: nn.Module) -> Plan:
        """The classifier, and biases, lite residual modules or both.

        Raises:
            PocketuneError: There are no blocks for lite residual modules, or blocks so wide that
                the modules would have over three times as many parameters as the network; or
                `head` is asked for and the network has no feature fusion layer.
        """
        modules = self.modules(network) if self.lite_residual else Plan()
        trained = parameters_under(network, anatomy(network).classifier) | modules.trained
        if self.bias:
            last = f".{BRANCH}.{LiteResidual.LAST_BIAS}"
            repeated = frozenset(name for name in modules.trained if name.endswith(last))
            trained = (trained | biases(network)) - repeated
        if self.head:
            trained |= _feature_fusion(network)
        group = self.norm == "group"
        return Plan(
            trained,
            replaced=group_norms(network) | _standardized(network) if group else {},
            branches=modules.branches,
            passes=(MASKS,),
        )

    def finalize(self, plan: Plan, network: nn.Module) -> Plan:
        """Kernels that another method trains are standardized in every step, not once."""
        if self.norm != "group":
            return plan
        trained = [name for name in _standardized(network) if f"{name}.weight" in plan.trained]
        in_every_step = dict.fromkeys(trained, standardize_convolution)
        return replace(plan, replaced={**plan.replaced, **in_every_step})

    def modules(self, network: nn.Module, blocks: Collection[str] | None = None) -> Plan:
        """A plan that trains only the lite residual modules of some blocks, or of all.

        Modules that the network already has are kept and trained.

        Args:
            network: Not changed.
            blocks: Names of the blocks; the first block of a network never has a module.

        Raises:
            PocketuneError: As `plan`.
        """
        branches = self._branches(network)
        if blocks is not None:
            branches = {block: make for block, make in branches.items() if block in blocks}
        trained = parameters_of_branches(planned_branches(network, branches))
        new = {block: make for block, make in branches.items() if not _has_branch(network, block)}
        return Plan(trained, branches=new)

    def insert_modules(self, network: nn.Module) -> nn.Module:
        """A copy of `network` with lite residual modules, to be pretrained together.

        The modules are recorded in `config.branches` of the copy: `save_network` writes them,
        `create_network` rebuilds them, and this method trains them from their saved values, as the
        paper's "pre-trained" lite residual modules.

        Args:
            network: Made by `create_network` and not adapted; not changed.

        Raises:
            PocketuneError: No block can have a module, or the network has modules already, or no
                config to record them in.

        Example:
            >>> from pocketune import about, create_network
            >>> network = TinyTL().insert_modules(create_network("mobilenet_v2", classes=4))
            >>> about(network).config.branches["features.2"]["kernel"]
            5
        """
        config = about(network).config
        if config is None:
            raise PocketuneError(
                f"{type(network).__name__} has no config to record lite residual modules in; "
                "create it with create_network"
            )
        if config.branches:
            raise PocketuneError("the network has lite residual modules already; use it unchanged")
        complete = copy_network(network)
        add_branches(complete, self._branches(network))
        arguments = {
            name.removesuffix(f".{BRANCH}"): module.arguments()
            for name, module in complete.named_modules()
            if isinstance(module, LiteResidual)
        }
        set_about(complete, config=replace(config, branches=arguments))
        return complete

    def _branches(self, network: nn.Module) -> dict[str, Factory]:
        """Factories of the lite residual modules, by the block's name.

        Kernels shrink until they fit the pooled map, whose side follows from the strides of the
        blocks.
        """
        first, *blocks = anatomy(network).blocks
        if not blocks:
            raise PocketuneError(
                "every block except the first gets a lite residual module, and the network has one "
                "block; use TinyTL(lite_residual=False)"
            )
        require_channels_first(network, [first, *blocks])
        branches: dict[str, Factory] = {}
        side = TABLE_SIDE // block_maps(network, first).stride
        for block in blocks:
            kernel = LiteResidual.fitting_kernel(self.kernel, side)
            branches[block.name] = partial(self._lite_residual, network, block, kernel)
            side //= block_maps(network, block).stride
        _check_size(network, branches)
        return branches

    def _lite_residual(
        self, network: nn.Module, block: Block, kernel: int, _: nn.Module
    ) -> LiteResidual:
        inputs, outputs, stride = block_maps(network, block)
        try:
            return LiteResidual(
                inputs,
                outputs,
                kernel=kernel,
                stride=stride,
                groups=self.groups,
            )
        except PocketuneError as error:
            raise PocketuneError(f"block {block.name}: {error}") from None


def _check_size(network: nn.Module, branches: Mapping[str, Factory]) -> None:
    """Check that lite residual modules deserve their name, which those of wide blocks do not."""
    with torch.device("meta"):
        modules = [create(nn.Identity()) for create in branches.values()]
    added, present = _count(nn.ModuleList(modules)), _count(network)
    if added > _LARGEST * present:
        raise PocketuneError(
            f"the lite residual modules would have {added:,} values, and the network has "
            f"{present:,}; use TinyTL(lite_residual=False)"
        )


def _count(network: nn.Module) -> int:
    return sum(tensor.numel() for tensor in network.state_dict().values())


def _feature_fusion(network: nn.Module) -> frozenset[str]:
    """Names of the kernel and of the shift of the feature fusion layer."""
    layers = anatomy(network).feature_fusion
    if not layers:
        raise PocketuneError(
            "head=True trains the feature fusion layer, and the network has none; leave it out"
        )
    return frozenset(
        name for layer in layers for name in (f"{layer.conv}.weight", f"{layer.norm}.bias")
    )


def _has_branch(network: nn.Module, block: str) -> bool:
    return hasattr(network.get_submodule(block), BRANCH)


def _standardized(network: nn.Module) -> dict[str, Factory]:
    """Factories that standardize the kernels of all convolutions with a norm."""
    return dict.fromkeys(kernels_before_norms(network), standardized)
