"""TinyTL: frozen weights, trained biases and small branches beside the blocks."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from torch import nn

from pocketune.errors import PocketuneError, check_positive
from pocketune.layers import GroupNorm, LiteResidual, standardize_convolution, standardized
from pocketune.layers.group_norm import group_size
from pocketune.methods.method import Method
from pocketune.methods.parts import biases, parameters_of_branches, planned_branches
from pocketune.methods.plan import Pass, Plan
from pocketune.methods.registry import register_method
from pocketune.networks import Factory, about, anatomy, set_about
from pocketune.networks.anatomy.blocks import Block
from pocketune.networks.anatomy.modules import is_convolution, main_modules
from pocketune.networks.probe import copy_network
from pocketune.surgery import BRANCH, add_branches, mask_activations, parameters_under

NORMS = ("batch", "group")

MASKS = Pass(mask_activations)
"""Exact activations that keep less, wherever no method has put another one."""

RESOLUTION = 128
"""Side of the maps at the first block in the published table, whatever the images' own side."""


@register_method("tinytl")
@dataclass(frozen=True)
class TinyTL(Method):
    """Train biases and lite residual modules beside the blocks; weights stay frozen.

    TinyTL: Reduce Activations, Not Trainable Parameters for Efficient On-Device Learning (Cai,
    Gan, Zhu and Han, NeurIPS 2020): TinyTL-B is `TinyTL(lite_residual=False)`, TinyTL-L
    `TinyTL(bias=False)`, TinyTL-L+B `TinyTL()`. The classifier is trained in each.

    A frozen layer needs its input for nothing, so that little but one bit an activation is kept
    for the backward pass. Every image is normalized by itself, so that a batch may hold one.

    Attributes:
        bias: train every bias, the shifts of norms among them.
        lite_residual: put a `LiteResidual` beside every block but the first, and train it. In
            L+B the shift of its last norm is frozen: the block's own last shift does the same.
            Modules that the network has already stay as they are.
        norm: `"batch"`, on frozen statistics, or `"group"`: the paper's group norm with
            standardized weights, made for a network that was pretrained that way. Group norm
            keeps its input for the backward pass, frozen batch norm keeps nothing.
        kernel: largest kernel of the lite residual modules, odd. On the 7 x 7 maps of the last
            stage 5 becomes 3, as in the public code and its parameter counts; the paper says 5.
        groups: of their first convolution.
    """

    bias: bool = True
    lite_residual: bool = True
    norm: str = "batch"
    kernel: int = 5
    groups: int = 2

    def __post_init__(self) -> None:
        if not (self.bias or self.lite_residual):
            raise PocketuneError(
                "TinyTL(bias=False, lite_residual=False) trains the classifier alone; use "
                "LastLayer() for that"
            )
        if self.norm not in NORMS:
            raise PocketuneError(f"norm={self.norm!r} is unknown; choose from {NORMS}")
        check_positive(kernel=self.kernel, groups=self.groups)
        if self.kernel % 2 == 0:
            raise PocketuneError(f"kernel={self.kernel!r} must be odd")

    @property
    def frozen_bits(self) -> int:
        """8: what is frozen is read and never written."""
        return 8

    def plan(self, network: nn.Module) -> Plan:
        """The classifier, and biases, lite residual modules or both.

        Raises:
            PocketuneError: if there are no blocks for lite residual modules, or bottleneck ones,
                beside whose many channels the modules would be larger than the network.
        """
        modules = self.modules(network) if self.lite_residual else Plan(frozenset(), frozenset())
        trained = parameters_under(network, anatomy(network).classifier) | modules.trained
        if self.bias:
            last = f".{BRANCH}.{LiteResidual.LAST_BIAS}"
            repeated = frozenset(name for name in modules.trained if name.endswith(last))
            trained = (trained | biases(network)) - repeated
        group = self.norm == "group"
        return Plan(
            trained,
            frozenset(),
            replaced=_group_norms(network) | _standardized(network) if group else {},
            branches=modules.branches,
            passes=(MASKS,),
        )

    def finalize(self, plan: Plan, network: nn.Module) -> Plan:
        """Filters that another method trains are standardized in every step, not once."""
        if self.norm != "group":
            return plan
        trained = [name for name in _standardized(network) if f"{name}.weight" in plan.trained]
        in_every_step = dict.fromkeys(trained, standardize_convolution)
        return replace(plan, replaced={**plan.replaced, **in_every_step})

    def modules(self, network: nn.Module, blocks: Collection[str] | None = None) -> Plan:
        """Lite residual modules alone: those beside some blocks, or all, are trained.

        Modules that the network has already are trained as they are.

        Args:
            network: it stays as it is.
            blocks: names of the blocks; the first block of a network never has a module.

        Raises:
            PocketuneError: as `plan`.
        """
        branches = self._branches(network)
        if blocks is not None:
            branches = {block: make for block, make in branches.items() if block in blocks}
        trained = parameters_of_branches(planned_branches(network, branches))
        new = {block: make for block, make in branches.items() if not _has_branch(network, block)}
        return Plan(trained, frozenset(), branches=new)

    def insert_modules(self, network: nn.Module) -> nn.Module:
        """A copy of `network` with lite residual modules in place, ready to be pretrained with it.

        The modules are recorded in `config.branches` of the copy: `save_network` writes them,
        `create_network` builds them again, and this method trains them from the values that they
        have, as the paper's "pre-trained" lite residual modules.

        Args:
            network: one of `create_network`, not adapted; it stays as it is.

        Raises:
            PocketuneError: if there is no place for modules, the network has some already, or it
                has no config to record them in.

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
            raise PocketuneError("the network has lite residual modules already; use it as it is")
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
        """By the block's name, what makes the module beside it.

        Kernels shrink until they fit the pooled map, as in TinyTL's code. Its table of maps is
        that of ProxylessNAS-Mobile; here the blocks' own strides give the same one.
        """
        first, *blocks = anatomy(network).blocks
        if not blocks:
            raise PocketuneError(
                "lite residual modules go beside every block but the first, and the network has "
                "one block; use TinyTL(lite_residual=False)"
            )
        if any(block.is_bottleneck for block in blocks):
            raise PocketuneError(
                "lite residual modules beside bottleneck blocks would be larger than the network "
                "itself; use TinyTL(lite_residual=False)"
            )
        branches: dict[str, Factory] = {}
        side = RESOLUTION // _stride(network, first)
        for block in blocks:
            kernel = self.kernel
            while kernel > max(side // 2, 1):
                kernel -= 2
            branches[block.name] = partial(self._lite_residual, network, block, kernel)
            side //= _stride(network, block)
        return branches

    def _lite_residual(
        self, network: nn.Module, block: Block, kernel: int, _: nn.Module
    ) -> LiteResidual:
        first, last = (network.get_submodule(block.main[i].conv) for i in (0, -1))
        assert is_convolution(first)
        assert is_convolution(last)
        try:
            return LiteResidual(
                first.in_channels,
                last.out_channels,
                kernel=kernel,
                stride=_stride(network, block),
                groups=self.groups,
            )
        except PocketuneError as error:
            raise PocketuneError(f"block {block.name}: {error}") from None


def _stride(network: nn.Module, block: Block) -> int:
    """How many times smaller the block's output is than its input, along one side."""
    convolutions = [network.get_submodule(layer.conv) for layer in block.main]
    return prod(int(conv.stride[0]) for conv in convolutions if is_convolution(conv))


def _has_branch(network: nn.Module, block: str) -> bool:
    return hasattr(network.get_submodule(block), BRANCH)


def _group_norms(network: nn.Module) -> dict[str, Factory]:
    """What makes group norms of all batch norms; scale and shift stay the batch norm's."""
    norms = {n: m for n, m in main_modules(network) if isinstance(m, nn.BatchNorm2d)}
    for name, norm in norms.items():
        _check_groups(name, norm)
    return dict.fromkeys(norms, _group_norm)


def _standardized(network: nn.Module) -> dict[str, Factory]:
    """What standardizes the filters of all convolutions that have no bias."""
    modules = main_modules(network)
    names = [name for name, m in modules if is_convolution(m) and m.bias is None]
    return dict.fromkeys(names, _standardize)


def _check_groups(name: str, norm: nn.BatchNorm2d) -> None:
    try:
        group_size(norm.num_features)
    except PocketuneError as error:
        raise PocketuneError(f"layer {name}: {error}") from None


def _group_norm(norm: nn.Module) -> nn.Module:
    assert isinstance(norm, nn.BatchNorm2d)
    return GroupNorm.from_batch_norm(norm)


def _standardize(conv: nn.Module) -> nn.Module:
    assert isinstance(conv, nn.Conv2d)
    return standardized(conv)
