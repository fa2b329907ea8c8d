"""A network that holds the weights of all sub-networks of a space."""

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pocketune.errors import PocketuneError, check_positive, check_type
from pocketune.networks import Normalization, about, set_about
from pocketune.networks.architectures.parts import initialize_linear, make_divisible
from pocketune.supernet.config import SubnetConfig
from pocketune.supernet.pretrained import fill, space_around
from pocketune.supernet.sharing import leading, module_kernel, smaller_kernel
from pocketune.supernet.sorting import sort_hidden
from pocketune.supernet.space import FIRST_BLOCK, Space, block_path, stored_name
from pocketune.surgery import BRANCH
from pocketune.weights.saved import build

OUTPUT = "classifier.1"
DEPTHWISE = "conv.1.0.weight"
MODULE = f"{BRANCH}.conv1.weight"


class Supernet(nn.Module):
    """The weights of all sub-networks of a space, and any of them as an ordinary network.

    It stores the values of the largest sub-network, and for each depthwise convolution the matrices
    that make smaller kernels of the stored ones. A sub-network uses the first blocks of each stage,
    the first hidden channels of each block, the transformed centers of the kernels, and for modules
    of more groups the parts of the kernels that its groups read. `state_of` says which, and both
    `forward` and `subnet` take its values, so they compute the same, bit for bit.

    Cai et al., Once for All, ICLR 2020; TinyTL, NeurIPS 2020, section 3.3.

    Args:
        space: The sub-networks to have.
        normalization: Of the images.

    Attributes:
        space: As given.
        network: The stored values, as the largest sub-network with the largest kernels.
        matrices: For the index of each block, and each kernel but the largest, a square matrix.

    Example:
        >>> from pocketune.supernet import Space
        >>> supernet = Supernet(Space(width=0.35, classes=10, depths=(1, 2), sizes=(64,)))
        >>> config = supernet.sample(np.random.default_rng(0))
        >>> supernet.activate(config)
        >>> supernet.eval()(torch.zeros(1, 3, 64, 64)).shape
        torch.Size([1, 10])
        >>> network = supernet.subnet(config)  # for adapt, compile, save_network
    """

    def __init__(self, space: Space, normalization: Normalization | None = None) -> None:
        check_type(Space, space=space)
        super().__init__()
        self.space = space
        self.network = build(space.network_config(space.largest))
        self.matrices = nn.ModuleDict(
            {
                str(block): nn.ParameterDict(
                    {str(k): nn.Parameter(_identity(k * k)) for k in space.kernels[:-1]}
                )
                for block in range(space.blocks)
                if len(space.kernels) > 1 and not space.place(block).reduced
            }
        )
        self._active = space.largest
        self._blocks: dict[tuple[int, ...] | None, nn.Module] = {}  # without values
        set_about(self, normalization=normalization or Normalization.IMAGENET)

    @property
    def active(self) -> SubnetConfig:
        """The sub-network that `forward` runs; at first the largest."""
        return self._active

    @property
    def largest(self) -> SubnetConfig:
        """The largest sub-network."""
        return self.space.largest

    @property
    def smallest(self) -> SubnetConfig:
        """The smallest sub-network."""
        return self.space.smallest

    def sample(self, rng: np.random.Generator) -> SubnetConfig:
        """A sub-network whose choices are drawn uniformly and independently of each other.

        Raises:
            PocketuneError: `rng` is not a generator of NumPy.
        """
        return self.space.sample(rng)

    def activate(self, config: SubnetConfig) -> None:
        """Make `forward` run this sub-network.

        Raises:
            PocketuneError: The space does not have it.
        """
        self.space.check(config)
        self._active = config

    def forward(self, x: Tensor) -> Tensor:
        """Normalized images (N, 3, H, W) -> logits (N, classes) of the active sub-network.

        The gradients arrive in the stored parameters. In training mode, batch norms update the part
        of the stored statistics that the sub-network uses.
        """
        skeleton = self._skeleton(self._active).train(self.training)
        state = self._state(self._active, skeleton)
        logits: Tensor = torch.func.functional_call(skeleton, state, (x,))
        return logits

    def state_of(self, config: SubnetConfig) -> dict[str, Tensor]:
        """The values of a sub-network by their names in `subnet(config)`.

        They are made of the stored ones by differentiable operations. Statistics of norms are views
        of the stored ones.

        Raises:
            PocketuneError: The space does not have the sub-network.
        """
        return self._state(config, self._skeleton(config))

    def subnet(self, config: SubnetConfig) -> nn.Module:
        """A sub-network with values of its own, as `create_network` makes networks.

        It can be adapted, compiled and saved like any other. With batch norm, call
        `estimate_batch_norm` before it is evaluated: its statistics are those of the supernet.

        Args:
            config: The sub-network.

        Returns:
            The network, in the supernet's training mode and on its device.

        Raises:
            PocketuneError: The space does not have the sub-network.
        """
        network = meta_subnet(self.space, config)
        state = {name: t.detach().clone() for name, t in self.state_of(config).items()}
        network.load_state_dict(state, assign=True)
        set_about(
            network,
            config=self.space.network_config(config),
            normalization=about(self).normalization,
        )
        return network.train(self.training)

    def with_classes(self, classes: int) -> "Supernet":
        """A copy with a new classifier, as for other photos.

        Raises:
            PocketuneError: `classes` is not positive.
        """
        check_positive(classes=classes)
        twin = copy.deepcopy(self)
        twin.space = replace(self.space, classes=classes)
        old = twin.network.get_submodule(OUTPUT)
        assert isinstance(old, nn.Linear)
        layer = nn.Linear(old.in_features, classes).to(old.weight)
        initialize_linear(layer)
        twin.network.set_submodule(OUTPUT, layer)
        return twin

    def sort_channels(self, keep: int | None = None) -> None:
        """Put the most important hidden channels of each block first, in place.

        Narrow sub-networks then lose the least important ones. Importance is the L1 norm of the
        projection's weights that read a channel; what the largest sub-network computes stays the
        same, up to rounding.

        Args:
            keep: An expansion whose channels stay in front of the others, as before the second
                phase of width; None sorts all.

        Raises:
            PocketuneError: The space does not have this expansion.
        """
        expansion = self.space.expansions[-1] if keep is None else keep
        if expansion not in self.space.expansions:
            raise PocketuneError(
                f"the space has no expansion of {keep}; choose from {self.space.expansions}"
            )
        kept = {
            block_path(block): make_divisible(self.space.place(block).inputs * expansion)
            for block in range(self.space.blocks)
        }
        sort_hidden(self.network, kept)

    @classmethod
    def from_network(cls, network: nn.Module, **options: Any) -> "Supernet":
        """A supernet in which a pretrained MobileNetV2 is one of the sub-networks.

        Its kernels go into the center of the larger ones and all matrices are the identity, so
        every kernel computes the same at first. Blocks that it does not have start as the identity.
        The sub-network `pretrained_config(supernet.space)` gives the outputs of the network. If its
        batch norms are folded, call `restore_batch_norm` first.

        Args:
            network: A `mobilenet_v2` of `create_network`; not changed.
            options: Of `Space`, such as `sizes`; channels, width, classes and padding are those
                of the network.

        Raises:
            PocketuneError: The network is another or was changed, or the space has no place for it.
        """
        supernet = cls(space_around(network, options), about(network).normalization)
        fill(supernet.network, network, supernet.space)
        return supernet

    def __getstate__(self) -> dict[str, Any]:
        """What is copied: all but the blocks without values."""
        return {**vars(self), "_blocks": {}}

    def _state(self, config: SubnetConfig, skeleton: nn.Module) -> dict[str, Tensor]:
        stored = dict(_tensors(self.network))
        places = self.space.places(config)
        state = {}
        for name, wanted in _tensors(skeleton):
            whole = stored_name(name, places)
            state[name] = self._cut(whole, stored[whole], wanted.shape)
        return state

    def _cut(self, name: str, stored: Tensor, shape: torch.Size) -> Tensor:
        """The part of a stored tensor that has this shape."""
        if stored.shape == shape:
            return stored
        _, place, rest = name.split(".", 2)
        if rest == MODULE:
            return module_kernel(stored, shape)
        if rest == DEPTHWISE and shape[-1] != stored.shape[-1]:
            matrices = self.matrices[str(int(place) - FIRST_BLOCK)]
            assert isinstance(matrices, nn.ParameterDict)
            by_kernel = {int(kernel): matrix for kernel, matrix in matrices.items()}
            return smaller_kernel(stored[: shape[0]], shape[-1], by_kernel)
        return leading(stored, shape)

    def _skeleton(self, config: SubnetConfig) -> nn.Module:
        """The network of a config without values, of blocks that are kept.

        A block depends only on its own choices, and building it takes a fifth of the time of a
        step on small images.
        """
        config = self.space.canonical(config)
        blocks = self.space.active(config)
        keys = [self._choices(config, block) for block in blocks]
        if not all(key in self._blocks for key in keys):
            built = meta_subnet(self.space, config).features
            assert isinstance(built, nn.Sequential)
            found = list(built)[FIRST_BLOCK : FIRST_BLOCK + len(blocks)]
            self._blocks |= dict(zip(keys, found, strict=True))
        whole = self._whole()
        assert isinstance(whole.features, nn.Sequential)
        features = list(whole.features)
        features[FIRST_BLOCK : FIRST_BLOCK + self.space.blocks] = [self._blocks[k] for k in keys]
        skeleton = copy.copy(whole)
        vars(skeleton)["_modules"] = {**whole._modules, "features": nn.Sequential(*features)}
        return skeleton

    def _whole(self) -> nn.Module:
        """The largest network without values, for all but the blocks."""
        key = None
        if key not in self._blocks:
            self._blocks[key] = meta_subnet(self.space, self.space.largest)
        return self._blocks[key]

    @staticmethod
    def _choices(config: SubnetConfig, block: int) -> tuple[int, ...]:
        """What a block's layers depend on."""
        kinds = (config.kernels, config.expansions, config.module_groups, config.module_kernels)
        return (block, *(kind[block] for kind in kinds if kind))


def _identity(size: int) -> Tensor:
    """`torch.eye`, which takes long on the meta device."""
    return torch.zeros(size, size).fill_diagonal_(1)


def meta_subnet(space: Space, config: SubnetConfig) -> nn.Module:
    """A sub-network on the meta device, which has shapes and no values."""
    with torch.device("meta"):
        return build(space.network_config(config))


def _tensors(network: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from network.named_parameters()
    yield from network.named_buffers()
