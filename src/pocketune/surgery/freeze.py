"""Freeze parameters and running statistics."""

from collections.abc import Collection, Iterable

from torch import nn

from pocketune.errors import PocketuneError
from pocketune.layers import FrozenBatchNorm1d, FrozenBatchNorm2d, FrozenConv2d
from pocketune.layers.conv import computes_kernel, is_plain, pads_in_numbers
from pocketune.networks.anatomy.modules import BatchNorm
from pocketune.surgery.swap import swap


def batch_norms(network: nn.Module) -> dict[str, BatchNorm]:
    """The batch norms of a network by name, except frozen ones."""
    return {name: m for name, m in network.named_modules() if isinstance(m, BatchNorm)}


def separate_batch_norms(network: nn.Module) -> None:
    """Turn every `SyncBatchNorm` into a `BatchNorm2d` with the same tensors, in place.

    Raises:
        PocketuneError: A norm is of a class derived from `SyncBatchNorm`; the message names it.
    """
    norms = {n: m for n, m in network.named_modules() if isinstance(m, nn.SyncBatchNorm)}
    for name, norm in norms.items():
        if type(norm) is not nn.SyncBatchNorm:
            raise PocketuneError(
                f"{name} is a {type(norm).__name__}, which cannot be frozen; build the network "
                "without synchronized batch norms"
            )
    swap(network, dict.fromkeys(norms, _unsynchronized))


def parameters_under(network: nn.Module, modules: Iterable[str]) -> frozenset[str]:
    """Names of all parameters of the modules with these names.

    Raises:
        AttributeError: If there is no module of that name.
    """
    return frozenset(
        f"{module}.{parameter}"
        for module in modules
        for parameter, _ in network.get_submodule(module).named_parameters()
    )


def train_only(network: nn.Module, trained: Collection[str]) -> None:
    """Let exactly these parameters require a gradient, in place."""
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(name in trained)


def freeze_batch_norms(network: nn.Module, keep: Collection[str]) -> None:
    """Turn every batch norm not in `keep` into a `FrozenBatchNorm2d` or `1d`, in place."""
    frozen = [name for name in batch_norms(network) if name not in keep]
    swap(network, dict.fromkeys(frozen, _freeze))


def freeze_convolutions(network: nn.Module) -> None:
    """Turn every convolution whose kernel requires no gradient into a `FrozenConv2d`, in place."""
    frozen = [n for n, m in network.named_modules() if is_plain(m) and can_freeze(m)]
    swap(network, dict.fromkeys(frozen, FrozenConv2d.from_convolution))


def can_freeze(conv: nn.Conv2d) -> bool:
    """Whether a layer with a fixed kernel can replace this convolution."""
    return pads_in_numbers(conv) and not computes_kernel(conv) and not conv.weight.requires_grad


def _unsynchronized(norm: nn.SyncBatchNorm) -> nn.Module:
    made = nn.BatchNorm2d(
        norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats
    )
    made.weight, made.bias = norm.weight, norm.bias
    made.running_mean, made.running_var = norm.running_mean, norm.running_var
    made.num_batches_tracked = norm.num_batches_tracked
    return made


def _freeze(norm: BatchNorm) -> nn.Module:
    frozen = FrozenBatchNorm1d if isinstance(norm, nn.BatchNorm1d) else FrozenBatchNorm2d
    return frozen.from_batch_norm(norm)
