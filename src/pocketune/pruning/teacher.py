"""A teacher: following the outputs of its blocks, and loading it."""

import torch
from torch import Tensor, nn

from pocketune.errors import PocketuneError
from pocketune.networks import about, anatomy
from pocketune.networks.anatomy.modules import is_within
from pocketune.weights import create_network
from pocketune.weights.saved import recorded_classes


class Blocks:
    """The outputs of the changed blocks, compared with those of the teacher's blocks.

    Pruned blocks are changed; and all of them, with the feature fusion layer, if norms or kernels
    became others. Layers after the last of them are not trained, so a few photos cannot harm them
    (the reconstruction of He, Zhang and Sun, Channel Pruning for Accelerating Very Deep
    Neural Networks, ICCV 2017, by gradients and for all blocks at once). Labels are not needed.

    Args:
        network: A pruned network, or one with group norms or standardized kernels.
        teacher: The network that it was made from.

    Attributes:
        model: The trained part; `loss` takes its output.
        teacher: The same part of the teacher.

    Raises:
        PocketuneError: There is no teacher, or no block of the network was changed.
    """

    def __init__(self, network: nn.Module, teacher: nn.Module | None) -> None:
        if teacher is None:
            raise PocketuneError(
                "following the blocks of a teacher needs one: give the unpruned network as teacher"
            )
        changed = _changed(network, teacher)
        if not changed:
            raise PocketuneError(
                "no block of this network was pruned: let it follow a teacher's predictions"
            )
        self.model: nn.Module = _Start(network, changed)
        self.teacher: nn.Module = _Start(teacher, changed)

    def loss(self, output: list[Tensor], images: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG002
        """Sum over blocks of the squared error of a map divided by the sum of its squares."""
        with torch.no_grad():
            wanted = self.teacher(images)
        errors = [
            (own - other).square().sum() / other.square().sum()
            for own, other in zip(output, wanted, strict=True)
        ]
        return torch.stack(errors).sum()


def _changed(network: nn.Module, teacher: nn.Module) -> tuple[str, ...]:
    """Parts of `_in_order` whose outputs are compared."""
    own, other = about(network).config, about(teacher).config
    if own is None:
        return ()
    if other is None or (own.norm, own.standardized) == (other.norm, other.standardized):
        return tuple(own.hidden)
    body = anatomy(network)
    convolutions = {layer.conv for layer in body.feature_fusion}
    behind = (
        name
        for name, _ in _in_order(network)
        if any(is_within(conv, name) for conv in convolutions)
    )
    return (*(block.name for block in body.blocks), *behind)


class _Start(nn.Module):
    """A network up to the last of these blocks; it returns the outputs of all of them."""

    def __init__(self, network: nn.Module, blocks: tuple[str, ...]) -> None:
        super().__init__()
        self.parts = nn.ModuleList()
        self._ends: list[int] = []
        wanted = set(blocks)
        for name, part in _in_order(network):
            self.parts.append(part)
            if name in wanted:
                self._ends.append(len(self.parts))
                wanted.remove(name)
            if not wanted:
                break

    def forward(self, images: Tensor) -> list[Tensor]:
        """Normalized images (N, 3, H, W) -> a feature map (N, C, h, w) for each block."""
        x, maps = images, []
        for count, part in enumerate(self.parts, 1):
            x = part(x)
            if count in self._ends:
                maps.append(x)
        return maps


def _in_order(network: nn.Module) -> list[tuple[str, nn.Module]]:
    """Blocks and single layers by name, as they run one after the other."""
    blocks = {block.name for block in anatomy(network).blocks}
    order: list[tuple[str, nn.Module]] = []

    def walk(name: str, module: nn.Module) -> None:
        if name not in blocks and any(block.startswith(f"{name}.") for block in blocks):
            for child, part in module.named_children():
                walk(f"{name}.{child}", part)
        else:
            order.append((name, module))

    for name, module in network.named_children():
        walk(name, module)
    return order


def load_teacher(weights: str, student: nn.Module) -> nn.Module:
    """The network that `student` was before it was pruned or got additional modules.

    Args:
        weights: Weights of that network.
        student: Made by `create_network` or `load_network`.

    Raises:
        PocketuneError: The weights are not of such a network.
    """
    known = about(student)
    if known.config is None:
        raise PocketuneError(
            f"{type(student).__name__} has no config to build its teacher from; create it with "
            "create_network"
        )
    options = known.config.to_dict()
    for changed in ("hidden", "branches", "norm", "standardized"):
        options.pop(changed, None)
    options["classes"] = recorded_classes(weights)
    return create_network(**options, weights=weights, normalization=known.normalization)
