"""How good filtered gradients are: their signal-to-noise ratio, and its reason in the kernels.

Yang et al., CVPR 2023, section 4: the more of a kernel's energy is in its sum over the taps, the
less noise filtering adds to a gradient that passes the layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf, log10
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from pocketune.errors import PocketuneError
from pocketune.methods.gradient_filter.method import GradientFilter
from pocketune.methods.parts import refuse_adapted
from pocketune.networks import Factory
from pocketune.networks.anatomy.modules import is_convolution
from pocketune.networks.checks import require_module
from pocketune.networks.copies import disable_inplace, gradients_on
from pocketune.networks.images import require_images
from pocketune.networks.probe import probing
from pocketune.surgery import in_float, swap, train_only
from pocketune.tasks.maps import IGNORED


@dataclass(frozen=True)
class LayerSNR:
    """Signal-to-noise ratios at one filtered convolution, in decibels.

    `10 log10(|g|^2 / |g~ - g|^2)` with the exact gradient g and the filtered one g~, over all
    images together; infinite where they are equal.

    Attributes:
        layer: Path of the convolution.
        arriving: Ratio of the gradient of its output.
        passed_on: Ratio of the gradient of its input; None if no earlier layer is trained.
        kernel: Ratio of the gradient of its kernel.
    """

    layer: str
    arriving: float
    passed_on: float | None
    kernel: float

    def __str__(self) -> str:
        passed_on = "" if self.passed_on is None else f", {self.passed_on:.1f} dB pass on"
        return (
            f"{self.layer}: {self.arriving:.1f} dB arrive{passed_on}; kernel {self.kernel:.1f} dB"
        )


class _Gradients(NamedTuple):
    output: Tensor
    input: Tensor | None
    kernel: Tensor


@gradients_on()
def gradient_snr(
    network: nn.Module, method: GradientFilter, images: Tensor, labels: Tensor
) -> list[LayerSNR]:
    """Compare the gradients of a network's loss with and without filtering, layer by layer.

    Every norm uses its running statistics, and nothing is dropped out.

    Args:
        network: Not adapted yet; not changed.
        method: Which layers are filtered, and how; `layers` is a number or names.
        images: (N, 3, H, W), normalized as the network expects.
        labels: (N,), classes of the images; or (N, H, W), classes of their pixels, with 255 for
            those that do not count. The logits of a network that classifies pixels are resized.

    Returns:
        In the order in which the gradient passes the layers, from the classifier down.

    Raises:
        PocketuneError: The method does not fit the network or names no layers; the network is
            adapted already; there are no images; or images or labels are something else.
    """
    refuse_adapted(network)
    require_images(network, images)
    _require_labels(labels)
    if len(images) == 0 or len(labels) != len(images):
        raise PocketuneError(
            f"there are {len(images)} images and {len(labels)} labels; give a batch of images and "
            "a label for each"
        )
    images, labels = images.clone(), labels.clone()  # inference tensors cannot be recorded
    factories = method.plan(network).replaced
    if not factories:
        raise PocketuneError(f"{method} names no layers; give their number, or their names")
    layers = [name for name, _ in network.named_modules() if name in factories]
    exact = _gradients(network, layers, {}, images, labels)
    filtered = _gradients(network, layers, factories, images, labels)
    return [_snr(name, exact[name], filtered[name]) for name in reversed(layers)]


def _require_labels(labels: object) -> None:
    if not isinstance(labels, Tensor):
        raise PocketuneError(
            f"labels is of type {type(labels).__name__}; give a tensor of classes, as "
            "torch.tensor([0, 1]) makes it"
        )
    if labels.is_floating_point() or labels.dim() not in (1, 3):
        kind = str(labels.dtype).removeprefix("torch.")
        raise PocketuneError(
            f"labels is {kind} of the shape {tuple(labels.shape)}; give whole numbers (N,) or "
            "(N, H, W)"
        )


def _require_classes(labels: Tensor, classes: int) -> None:
    """Check that every label is a class; pixels may be left out."""
    known = labels if labels.dim() == 1 else labels[labels != IGNORED]
    if len(known) and not 0 <= int(known.min()) <= int(known.max()) < classes:
        wrong = known[(known < 0) | (known >= classes)][0]
        raise PocketuneError(
            f"the label {int(wrong)} is not one of the network's {classes} classes; give 0 to "
            f"{classes - 1}"
        )


def _loss(logits: Tensor, labels: Tensor) -> Tensor:
    _require_classes(labels, logits.shape[1])
    if labels.dim() == 1:
        return functional.cross_entropy(logits, labels.long())
    logits = functional.interpolate(logits, labels.shape[1:], mode="bilinear", align_corners=False)
    return functional.cross_entropy(logits, labels.long(), ignore_index=IGNORED)


def _snr(layer: str, exact: _Gradients, filtered: _Gradients) -> LayerSNR:
    passed_on = None
    if exact.input is not None and filtered.input is not None:
        passed_on = _decibels(exact.input, filtered.input)
    return LayerSNR(
        layer,
        _decibels(exact.output, filtered.output),
        passed_on,
        _decibels(exact.kernel, filtered.kernel),
    )


def dc_energy(network: nn.Module) -> dict[str, float]:
    """Share of each convolution's energy that is in the sums over its kernels' taps.

    `sum of DC^2 / sum of |DFT|^2` over all pairs of channels, 1 for a 1x1 convolution; by
    Parseval's theorem `sum (sum over taps of w)^2 / (taps * sum w^2)`. The paper's table 5 has
    another measure: see `dc_ratio`.

    Returns:
        By path of the convolution, in the order of `network.named_modules()`.
    """
    return {name: _dc_share(kernel) for name, kernel in _kernels(network)}


def dc_ratio(network: nn.Module) -> dict[str, float]:
    """Energy of each convolution's DC component over that of its largest other component.

    `sum of DC^2 / sum of max AC^2` over all pairs of channels, of the kernels' two-dimensional
    DFT: equation 13 and table 5 of the paper, which expects it to be above 1. It is infinite for a
    kernel without other components, such as that of a 1x1 convolution.

    Returns:
        By path of the convolution, in the order of `network.named_modules()`.
    """
    return {name: _dc_over_ac(kernel) for name, kernel in _kernels(network)}


def _kernels(network: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Paths and kernels (out, in / groups, height, width) of all convolutions."""
    require_module(network)
    for name, module in in_float(network).named_modules():
        if is_convolution(module):
            yield name, module.weight.detach()


def _dc_over_ac(kernel: Tensor) -> float:
    energy = torch.fft.fft2(kernel.double()).abs().square().flatten(2)
    if energy.shape[2] == 1:
        return inf
    dc, ac = energy[:, :, 0].sum().item(), energy[:, :, 1:].amax(2).sum().item()
    return dc / ac if ac else inf


def _dc_share(kernel: Tensor) -> float:
    taps = kernel.shape[2] * kernel.shape[3]
    total = kernel.square().sum().item() * taps
    return kernel.sum((2, 3)).square().sum().item() / total if total else 1.0


def _gradients(
    network: nn.Module,
    layers: list[str],
    factories: Mapping[str, Factory],
    images: Tensor,
    labels: Tensor,
) -> dict[str, _Gradients]:
    network = in_float(network)
    disable_inplace(network)
    swap(network, factories)
    train_only(network, {f"{name}.weight" for name in layers})
    outputs: dict[str, Tensor] = {}
    inputs: dict[str, Tensor] = {}

    def note_input(path: str, _: nn.Module, given: list[Tensor]) -> None:
        if given[0].requires_grad:
            inputs[path] = given[0]

    def note_output(path: str, _: nn.Module, made: list[Tensor]) -> None:
        outputs[path] = made[0]

    with probing(network, paths=layers, enter=note_input, leave=note_output, gradients=True):
        loss = _loss(network(images), labels)
    wanted = {
        **{("output", name): y for name, y in outputs.items()},
        **{("input", name): x for name, x in inputs.items()},
        **{("kernel", name): network.get_parameter(f"{name}.weight") for name in layers},
    }
    found = dict(zip(wanted, torch.autograd.grad(loss, list(wanted.values())), strict=True))
    return {
        name: _Gradients(found["output", name], found.get(("input", name)), found["kernel", name])
        for name in layers
    }


def _decibels(exact: Tensor, filtered: Tensor) -> float:
    signal = exact.double().square().sum().item()
    noise = (filtered.double() - exact.double()).square().sum().item()
    if noise == 0:
        return inf
    return 10 * log10(signal / noise) if signal else -inf
