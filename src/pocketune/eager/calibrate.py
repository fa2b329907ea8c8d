"""Integer arithmetic for the frozen part of an adapted network, in eager PyTorch."""

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import TypeGuard

import torch
from torch import Tensor, nn

from pocketune.eager.flow import Flow, follow
from pocketune.errors import PocketuneError
from pocketune.layers import (
    FrozenBatchNorm2d,
    IntegerConv2d,
    MaskedReLU,
    MaskedReLU6,
    QuantizedConv2d,
    Uint8,
)
from pocketune.networks import about, anatomy
from pocketune.networks.anatomy.anatomy import Anatomy
from pocketune.networks.anatomy.blocks import Layer
from pocketune.networks.checks import require_network, require_values
from pocketune.networks.copies import copy_network
from pocketune.networks.image_sizes import image_sizes
from pocketune.networks.images import image_batches
from pocketune.networks.probe import watch_inputs
from pocketune.surgery.quantize import quantize_frozen

FUSED: dict[type[nn.Module], str] = {
    nn.ReLU: "relu",
    MaskedReLU: "relu",
    nn.ReLU6: "relu6",
    MaskedReLU6: "relu6",
    nn.Hardswish: "hardswish",
}
"""Activations that an integer convolution can compute."""


def calibrate(network: nn.Module, batches: Iterable[Tensor] | None = None) -> nn.Module:
    """A copy of an adapted network that computes its frozen part in 8 bits, for eager PyTorch.

    Every frozen convolution into which no gradient flows becomes an `IntegerConv2d`, with the norm
    and the activation behind it. Inside a block feature maps stay uint8 from one to the next;
    between blocks, and around squeeze-excite, they are float32. Their ranges are those seen on
    `batches`. The trained part stays as it is.

    The copy cannot be compiled: `compile` takes the adapted network, and has a `calibration` of
    its own.

    Args:
        network: As `adapt` returns it, on the CPU; it stays as it is.
        batches: Normalized images (N, 3, H, W), a few dozen in all. They are not needed for
            weights of an `.int8.npz` file, which holds the ranges.

    Raises:
        PocketuneError: Without images, where they are needed; if batches are something else; if no
            convolution lies in a frozen part, or the network is calibrated already or not float32.

    Example:
        >>> import pocketune
        >>> network = pocketune.create_network("mobilenet_v2", width=0.35, classes=10)
        >>> adapted = pocketune.adapt(network, pocketune.MobileTL(blocks=3))
        >>> integers = calibrate(adapted, torch.randn(16, 3, 64, 64).split(4))
        >>> sum(isinstance(module, IntegerConv2d) for module in integers.modules())
        42
    """
    require_network(network)
    if any(isinstance(module, IntegerConv2d) for module in network.modules()):
        raise PocketuneError("the network is calibrated already; calibrate the adapted one again")
    require_values(network, "integer arithmetic")
    calibrated = copy_network(network)
    quantize_frozen(calibrated)
    body = anatomy(calibrated)
    layers, flow = _follow(calibrated, body)
    if not layers:
        raise PocketuneError(
            "no convolution of this network is frozen with nothing trained before it: there is "
            "nothing to compute in 8 bits"
        )
    if batches is not None:
        _observe(calibrated, [layer.conv for layer in layers], batches)
    formats = input_formats(calibrated)
    if any(layer.conv not in formats for layer in layers):
        raise PocketuneError(
            "these weights came without ranges of feature maps; calibrate with a few dozen images"
        )
    reader = dict([*_pairs(body), *_stem_pair(calibrated, body)])
    for layer in layers:
        following = reader.get(layer.conv, "")
        chained = flow.has_row(*layer.paths, following)
        gives = formats.get(following) if chained else None
        _fuse(calibrated, layer, flow, formats[layer.conv], gives)
    return calibrated


def observe_formats(network: nn.Module, batches: Iterable[Tensor]) -> None:
    """Set the input format of each convolution that `calibrate` would replace, in place.

    For a network whose frozen part is in 8 bits; `calibrate` then needs no images.

    Args:
        network: As `adapt` returns it; nothing happens where no such convolution is in it.
        batches: Those of `calibrate`.
    """
    layers, _ = _follow(network, anatomy(network))
    if layers:
        _observe(network, [layer.conv for layer in layers], batches)


def input_formats(network: nn.Module) -> dict[str, Uint8]:
    """Known formats of the convolutions' input maps, by the convolution's name."""
    convs = {n: m for n, m in network.named_modules() if isinstance(m, QuantizedConv2d)}
    return {name: conv.input_format for name, conv in convs.items() if conv.input_format}


def _follow(network: nn.Module, body: Anatomy) -> tuple[list[Layer], Flow]:
    """Layers that need no gradient, and what an image shows that runs through the network."""
    paths = {path for layer in body.layers for path in layer.paths}
    flow = _flow(network, paths, next(network.parameters()))
    frozen = [layer for layer in body.layers if _is_frozen(network.get_submodule(layer.conv))]
    return [layer for layer in frozen if layer.conv in flow.frozen], flow


def _flow(network: nn.Module, paths: Iterable[str], like: Tensor) -> Flow:
    """What an image shows, of the first size that the network takes."""
    for size in image_sizes(network):
        try:
            return follow(network, paths, like.new_zeros(1, 3, size, size))
        except RuntimeError as error:
            last = error
    raise PocketuneError(
        f"{type(network).__name__} takes images of no usual size: {last}"
    ) from last


def _observe(network: nn.Module, convs: list[str], batches: Iterable[Tensor]) -> None:
    ranges: dict[str, list[Tensor]] = {name: [] for name in convs}
    ends = {name: _ends(seen.append) for name, seen in ranges.items()}
    if watch_inputs(network, image_batches(network, batches), ends) == 0:
        raise PocketuneError("calibration needs images; give a few dozen")
    for name, seen in ranges.items():
        low, high = torch.stack(seen).aminmax()
        if not (low.isfinite() and high.isfinite()):
            raise PocketuneError(
                f"the input of {name} is not finite on these images; give other ones, or load the "
                "network's weights again"
            )
        conv = network.get_submodule(name)
        assert isinstance(conv, QuantizedConv2d)
        conv.input_format = Uint8.spanning(float(low), float(high))


def _ends(append: Callable[[Tensor], None]) -> Callable[[Tensor], None]:
    return lambda x: append(torch.stack(torch.aminmax(x)))


def _is_frozen(module: nn.Module) -> bool:
    """Whether a convolution can compute with integers: int8, without a trained bias."""
    return type(module) is QuantizedConv2d and not any(p.requires_grad for p in module.parameters())


def _pairs(body: Anatomy) -> Iterator[tuple[str, str]]:
    """Consecutive convolutions inside a block: only the second reads the output of the first."""
    for block in (block for block in body.blocks if block.is_row):
        yield from pairwise(layer.conv for layer in block.main)


def _stem_pair(network: nn.Module, body: Anatomy) -> Iterator[tuple[str, str]]:
    """The stem and the first convolution, unless a shortcut or side branch reads its maps, too."""
    beside = any(about(module).is_side_branch for module in network.modules())
    first = body.blocks[0]
    if body.stem and first.is_row and not first.residual and not beside:
        yield body.stem[-1].conv, body.blocks[0].layers[0].conv


def _fuse(network: nn.Module, layer: Layer, flow: Flow, reads: Uint8, gives: Uint8 | None) -> None:
    """Replace a convolution, its norm and its activation by one layer, as far as possible.

    `gives` is the input format of the next convolution, if that reads the output of this layer. The
    output stays float32 if a norm or an activation that cannot be fused comes in between.
    """
    conv = network.get_submodule(layer.conv)
    assert isinstance(conv, QuantizedConv2d)
    norm = network.get_submodule(layer.norm) if layer.norm else None
    follows = layer.norm is not None and flow.has_row(layer.conv, layer.norm)
    own = follows and not _is_shared(layer.norm, layer, flow)
    fused_norm = norm if own and _norm_fits(norm) else None
    stays = norm is not None and fused_norm is None
    kind = None if stays else _activation(network, layer, flow)
    fused = IntegerConv2d.fuse(
        conv, fused_norm, kind or "none", reads, None if kind is None else gives
    )
    network.set_submodule(layer.conv, fused)
    if fused_norm is not None:
        network.set_submodule(str(layer.norm), nn.Identity())
    if layer.activation and kind is not None and not _is_shared(layer.activation, layer, flow):
        network.set_submodule(layer.activation, nn.Identity())


def _norm_fits(norm: nn.Module | None) -> TypeGuard[FrozenBatchNorm2d]:
    """Whether a norm is frozen, without trained parameters or modules inside."""
    return type(norm) is FrozenBatchNorm2d and not (
        [*norm.children()] or any(p.requires_grad for p in norm.parameters())
    )


def _activation(network: nn.Module, layer: Layer, flow: Flow) -> str | None:
    """The activation to fuse into the convolution; None if it must stay a module."""
    if layer.activation is None:
        return "none"
    kind = FUSED.get(type(network.get_submodule(layer.activation)))
    shared = _is_shared(layer.activation, layer, flow)
    if not flow.has_row(*layer.paths) or (shared and kind != "relu"):
        return None  # a shared ReLU stays; applied twice, it changes nothing
    return kind


def _is_shared(path: str | None, layer: Layer, flow: Flow) -> bool:
    """Whether the norm or activation of a layer is called for other layers, too."""
    return path is not None and flow.calls(path) > flow.calls(layer.conv)
