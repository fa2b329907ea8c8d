"""Copying the weights of a model that the user already has, from timm, torchvision or elsewhere."""

from collections.abc import Collection
from itertools import chain

from torch import Tensor, nn

from pocketune.errors import PocketuneError
from pocketune.networks.about import Normalization, timm_normalization
from pocketune.networks.anatomy.modules import is_convolution, is_norm
from pocketune.weights.formats.files import STATISTICS, require_statistics

GEOMETRY = ("kernel_size", "stride", "groups", "padding")


def load_module(
    network: nn.Module, source: nn.Module, *, outputs: Collection[str]
) -> Normalization | None:
    """Copy the weights of `source` into `network`, layer by layer.

    Layers are matched by name where all names agree, else by the order in which they are
    registered. Each must have the other's shapes, and convolutions the same stride and padding.

    Args:
        network: Ours, changed in place.
        source: The model to copy from; not changed.
        outputs: Paths of the output layers in `network`, which are not changed if the number of
            classes differs.

    Returns:
        The normalization of images, if the model has one, as timm's do.

    Raises:
        PocketuneError: A layer does not fit; the message names it, and nothing is copied.
    """
    own, other = _weighted(network), _weighted(source)
    if own.keys() == other.keys():
        other = {name: other[name] for name in own}
    pairs = list(zip(own.items(), other.items(), strict=False))
    for mine, theirs in pairs:
        _check(mine, theirs, outputs)
    if len(own) != len(other):
        raise PocketuneError(
            f"the given {type(source).__name__} has {len(other)} layers with weights and the "
            f"network has {len(own)}; check name and feature_fusion"
        )
    for (name, target), (_, origin) in pairs:
        _copy(target, origin, is_output=name in outputs)
    return timm_normalization(source)


def _weighted(network: nn.Module) -> dict[str, nn.Module]:
    """Modules with parameters of their own, in order."""
    return {
        name: module
        for name, module in network.named_modules()
        if next(module.parameters(recurse=False), None) is not None
    }


def _check(
    mine: tuple[str, nn.Module], theirs: tuple[str, nn.Module], outputs: Collection[str]
) -> None:
    """Same tensors of the same shapes; the output layer may have other classes."""
    (name, target), (origin_name, origin) = mine, theirs
    own, other = _shapes(target), _shapes(origin)
    if isinstance(target, nn.GroupNorm):
        other = {key: size for key, size in other.items() if key not in STATISTICS}
    elif isinstance(target, nn.BatchNorm2d) and isinstance(origin, nn.GroupNorm):
        require_statistics(name, False, "the given model")
    if name in outputs:
        own, other = ({key: size[1:] for key, size in shapes.items()} for shapes in (own, other))
    if own != other:
        raise PocketuneError(
            f"the given weights do not fit the network: {origin_name} has {other} where "
            f"{name} has {own}; check name, width and feature_fusion"
        )
    if not _is_meta(target) and _is_meta(origin):
        raise PocketuneError(f"the given model has no values: {origin_name} is on the meta device")
    if not (is_convolution(target) and is_convolution(origin)):
        return
    for field in GEOMETRY:
        if getattr(target, field) != getattr(origin, field):
            raise PocketuneError(
                f"the given weights do not fit the network: {origin_name} has {field} "
                f"{getattr(origin, field)} where {name} has {getattr(target, field)}"
                + ("; try padding='same'" if field == "padding" else "")
            )


def _is_meta(module: nn.Module) -> bool:
    return any(tensor.is_meta for tensor in _tensors(module).values())


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    """A module's own parameters and buffers, without the norms' counter of batches."""
    tensors = chain(module.named_parameters(recurse=False), module.named_buffers(recurse=False))
    return {name: tensor for name, tensor in tensors if tensor.dim() > 0}


def _shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    """Shapes by name; a 1x1 convolution after pooling counts as a linear layer."""
    return {
        name: tuple(tensor.shape[:2] if tensor.shape[2:] == (1, 1) else tensor.shape)
        for name, tensor in _tensors(module).items()
    }


def _copy(target: nn.Module, origin: nn.Module, *, is_output: bool) -> None:
    tensors = _tensors(target)
    for name, value in _tensors(origin).items():
        if name not in tensors:  # the statistics of a batch norm that is a group norm here
            continue
        if is_output and value.shape[0] != tensors[name].shape[0]:
            continue
        tensors[name].data.copy_(value.detach().reshape(tensors[name].shape))
    if is_norm(target) and hasattr(target, "running_var"):
        _keep_function(target, origin)


def _keep_function(target: nn.Module, origin: nn.Module) -> None:
    """Adjust the variance to another epsilon: a norm depends only on their sum.

    The variance may become negative by less than epsilon; the sum stays the same.
    """
    variance = target.running_var
    assert isinstance(variance, Tensor)
    variance += float(origin.eps) - float(target.eps)  # type: ignore[arg-type]
