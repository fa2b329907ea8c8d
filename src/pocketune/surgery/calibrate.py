"""Let the frozen part of an adapted network compute with integers, in eager PyTorch."""

import copy
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TypeGuard

import torch
from torch import Tensor, nn

from pocketune.errors import PocketuneError
from pocketune.layers import (
    FrozenBatchNorm2d,
    IntegerConv2d,
    MaskedReLU,
    MaskedReLU6,
    QuantisedConv2d,
    Uint8,
)
from pocketune.networks import anatomy
from pocketune.networks.anatomy import Anatomy
from pocketune.networks.blocks import Layer
from pocketune.networks.conv import SameConv2d
from pocketune.surgery.quantise import QuantisedSameConv2d, quantise_frozen


class IntegerSameConv2d(IntegerConv2d, SameConv2d):
    """`SameConv2d` in 8-bit arithmetic; what is uint8 already is padded with its own zero."""

    def padding_value(self, x: Tensor) -> float:
        """What stands for zero in such a map."""
        return self.input_format.zero if x.dtype == torch.uint8 else 0.0


INTEGER: dict[type[nn.Module], type[IntegerConv2d]] = {
    QuantisedConv2d: IntegerConv2d,
    QuantisedSameConv2d: IntegerSameConv2d,
}
FUSED: dict[type[nn.Module], str] = {
    nn.ReLU: "relu",
    MaskedReLU: "relu",
    nn.ReLU6: "relu6",
    MaskedReLU6: "relu6",
    nn.Hardswish: "hardswish",
}
"""Activations that a convolution computes on its way."""


def calibrate(network: nn.Module, images: Iterable[Tensor]) -> nn.Module:
    """A copy of an adapted network that computes its frozen part in 8 bits, for eager PyTorch.

    Every frozen convolution into which no gradient flows becomes an `IntegerConv2d`, with the norm
    and the activation behind it. From one to the next maps stay uint8 inside a block; between
    blocks, and around squeeze-excite, they are float32. The ranges of the maps are those that
    `images` show. What is trained stays as it is, and is trained as before.

    The copy is for computing: to compile a kit give the adapted network to `compile`, whose
    `calibration` does the same there.

    Args:
        network: as `adapt` returns it, on the CPU; it stays as it is.
        images: batches of normalised images (N, 3, H, W), a few dozen in all.

    Raises:
        PocketuneError: without images; if no convolution lies in a frozen part, or the network is
            calibrated already.

    Example:
        >>> import pocketune
        >>> network = pocketune.create_network("mobilenet_v2", width=0.35, classes=10)
        >>> adapted = pocketune.adapt(network, pocketune.MobileTL(blocks=3))
        >>> integers = calibrate(adapted, torch.randn(16, 3, 64, 64).split(4))
        >>> sum(isinstance(module, IntegerConv2d) for module in integers.modules())
        42
    """
    if any(isinstance(module, IntegerConv2d) for module in network.modules()):
        raise PocketuneError("the network is calibrated already; calibrate the adapted one again")
    calibrated = copy.deepcopy(network)
    quantise_frozen(calibrated)
    body = anatomy(calibrated)
    layers = [layer for layer in body.layers if _is_frozen(_get(calibrated, layer.conv))]
    seen = _Seen(calibrated, layers)
    seen.watch(images)
    formats = {
        layer.conv: Uint8.spanning(*seen.ranges[layer.conv])
        for layer in layers
        if layer.conv in seen.ranges
    }
    if not formats:
        raise PocketuneError(
            "no convolution of this network is frozen with nothing trained before it: there is "
            "nothing to compute in 8 bits"
        )
    reader = dict({*_pairs(body), *_stem_pair(calibrated, body)} & seen.chained)
    for layer in layers:
        if layer.conv in formats:
            gives = formats.get(reader.get(layer.conv, ""))
            _fuse(calibrated, body, layer, formats[layer.conv], gives)
    return calibrated


class _Seen:
    """What goes into convolutions while a network predicts."""

    def __init__(self, network: nn.Module, layers: Iterable[Layer]) -> None:
        self.ranges: dict[str, tuple[float, float]] = {}
        self.chained: set[tuple[str, str]] = set()
        """Pairs of convolutions of which the second reads what the first's layer has given."""
        self._network = network
        self._layers = list(layers)
        self._latest = ""
        self._given: dict[int, str] = {}
        self._alive: list[Tensor] = []

    def watch(self, images: Iterable[Tensor]) -> None:
        """Run the network on images, as it predicts."""
        hooks = [hook for layer in self._layers for hook in self._hooks(layer)]
        modes = {module: module.training for module in self._network.modules()}
        self._network.eval()
        count = 0
        try:
            with torch.enable_grad():  # which shows what depends on anything that is trained
                for batch in images:
                    self._network(batch)
                    self._given.clear()
                    self._alive.clear()
                    count += len(batch)
        finally:
            for module, training in modes.items():
                module.training = training
            for hook in hooks:
                hook.remove()
        if count == 0:
            raise PocketuneError("calibration needs images; give a few dozen")

    def _hooks(self, layer: Layer) -> Iterator[torch.utils.hooks.RemovableHandle]:
        def reads(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            x, self._latest = inputs[0], layer.conv
            if x.requires_grad:
                return
            low, high = (float(end) for end in torch.aminmax(x))
            before = self.ranges.get(layer.conv, (low, high))
            self.ranges[layer.conv] = min(low, before[0]), max(high, before[1])
            if id(x) in self._given:
                self.chained.add((self._given[id(x)], layer.conv))

        def gives(_: nn.Module, __: tuple[Tensor, ...], output: Tensor) -> None:
            self._given[id(output)] = self._latest  # an activation may serve several layers
            self._alive.append(output)  # so that no other tensor gets its id

        yield _get(self._network, layer.conv).register_forward_pre_hook(reads)
        last = layer.activation or layer.norm or layer.conv
        yield _get(self._network, last).register_forward_hook(gives)


def _is_frozen(module: nn.Module) -> bool:
    """A convolution that can compute with integers: of int8, its bias not trained."""
    return type(module) in INTEGER and not any(p.requires_grad for p in module.parameters())


def _pairs(body: Anatomy) -> Iterator[tuple[str, str]]:
    """Convolutions in a row inside a block: nothing but the second reads what the first gives."""
    for block in body.blocks:
        main = [layer.conv for layer in block.layers if layer.role != "downsample"]
        yield from pairwise(main)


def _stem_pair(network: nn.Module, body: Anatomy) -> Iterator[tuple[str, str]]:
    """The stem and the first convolution, where no shortcut or side branch reads its maps too."""
    beside = any(getattr(module, "is_side_branch", False) for module in network.modules())
    if body.stem and not body.blocks[0].residual and not beside:
        yield body.stem[-1].conv, body.blocks[0].layers[0].conv


def _fuse(
    network: nn.Module, body: Anatomy, layer: Layer, reads: Uint8, gives: Uint8 | None
) -> None:
    """Put one layer in the place of a convolution, its norm and its activation, as far as it fits.

    `gives` is what the next convolution reads, where it reads what this layer gives. It is float32
    all the same if something that does not fit comes in between.
    """
    conv = _get(network, layer.conv)
    assert isinstance(conv, QuantisedConv2d)
    norm = _get(network, layer.norm) if layer.norm else None
    fused_norm = norm if _norm_fits(norm) else None
    stays = norm is not None and fused_norm is None
    kind = None if stays else _activation(network, body, layer)
    fused = INTEGER[type(conv)].fuse(
        conv, fused_norm, kind or "none", reads, None if kind is None else gives
    )
    network.set_submodule(layer.conv, fused)
    if fused_norm is not None:
        network.set_submodule(str(layer.norm), nn.Identity())
    if layer.activation and kind is not None and _uses(body, layer) == 1:
        network.set_submodule(layer.activation, nn.Identity())


def _norm_fits(norm: nn.Module | None) -> TypeGuard[FrozenBatchNorm2d]:
    """A frozen norm of which nothing is trained, and nothing runs inside it."""
    return type(norm) is FrozenBatchNorm2d and not (
        [*norm.children()] or any(p.requires_grad for p in norm.parameters())
    )


def _activation(network: nn.Module, body: Anatomy, layer: Layer) -> str | None:
    """How the convolution is to activate; None where its activation must stay by itself."""
    if layer.activation is None:
        return "none"
    kind = FUSED.get(type(_get(network, layer.activation)))
    if _behind_sum(body, layer) or (_uses(body, layer) > 1 and kind != "relu"):
        return None  # a ReLU that others need as well stays, and changes nothing here
    return kind


def _behind_sum(body: Anatomy, layer: Layer) -> bool:
    """Whether the activation comes after the shortcut was added."""
    ends = {
        [own for own in block.layers if own.role != "downsample"][-1].conv
        for block in body.blocks
        if block.kind != "inverted_residual"
    }
    return layer.conv in ends or layer.role == "downsample"


def _uses(body: Anatomy, layer: Layer) -> int:
    return sum(other.activation == layer.activation for other in body.layers)


def _get(network: nn.Module, path: str) -> nn.Module:
    return network.get_submodule(path)
