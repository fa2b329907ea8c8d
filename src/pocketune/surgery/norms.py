"""Group norms in the places of batch norms, and standardized kernels."""

from torch import nn

from pocketune.errors import PocketuneError
from pocketune.layers import GroupNorm, StandardizedConv2d, settled, standardize_convolution
from pocketune.layers.conv import computes_kernel
from pocketune.layers.group_norm import group_size
from pocketune.networks.anatomy.modules import Factory, conv_layers, main_modules
from pocketune.surgery.swap import swap


def group_norms(network: nn.Module) -> dict[str, Factory]:
    """Factories that replace all batch norms by group norms with the same weight and bias.

    Raises:
        PocketuneError: The channels of a norm cannot be grouped; the message names it.
    """
    norms = {n: m for n, m in main_modules(network) if isinstance(m, nn.BatchNorm2d)}
    for name, norm in norms.items():
        try:
            group_size(norm.num_features)
        except PocketuneError as error:
            raise PocketuneError(f"layer {name}: {error}") from None
    return dict.fromkeys(norms, GroupNorm.from_batch_norm)


def kernels_before_norms(network: nn.Module) -> list[str]:
    """Names of the convolutions without a bias that a norm follows: what is standardized.

    Those that are standardized already are left out.
    """
    layers = conv_layers(main_modules(network))
    return [
        layer.path
        for layer in layers
        if layer.norm is not None
        and layer.conv.bias is None
        and not isinstance(layer.conv, StandardizedConv2d)
    ]


def use_norms(network: nn.Module, norm: str, *, standardized: bool) -> None:
    """Give a network of batch norms the norms and kernels of a `NetworkConfig`, in place.

    Raises:
        PocketuneError: As `group_norms`.
    """
    if norm == "group":
        swap(network, group_norms(network))
    if standardized:
        swap(network, dict.fromkeys(kernels_before_norms(network), standardize_convolution))


def settle_kernels(network: nn.Module) -> None:
    """Standardize each kernel that requires no gradient once and for all, in place.

    An ordinary convolution with the result takes the layer's place, so that its kernel can be
    frozen or stored in 8 bits. Side branches keep their layers.
    """
    names = [
        name
        for name, module in main_modules(network)
        if type(module) is StandardizedConv2d
        and not computes_kernel(module)
        and not module.weight.requires_grad
    ]
    swap(network, dict.fromkeys(names, settled))
