"""Measure for which convolutions filtered gradients pay on this machine."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from pocketune.errors import PocketuneError, check_positive
from pocketune.filtering import check_filter, filter_convolution
from pocketune.methods.parts import convolution, refuse_adapted
from pocketune.networks import Factory
from pocketune.networks.copies import gradients_on
from pocketune.networks.probe import input_shapes
from pocketune.surgery import in_float

ROUNDS = 5
"""Measurements of each variant; the fastest counts."""


@dataclass(frozen=True)
class FilterChoice:
    """What one convolution costs with exact and with filtered gradients.

    Attributes:
        layer: Path of the convolution.
        exact_ms: Milliseconds of its forward and backward pass.
        filtered_ms: The same with filtered gradients.
        exact_bytes: Bytes that are kept for the exact backward pass.
        filtered_bytes: The same with filtered gradients.
    """

    layer: str
    exact_ms: float
    filtered_ms: float
    exact_bytes: int
    filtered_bytes: int

    @property
    def filtered(self) -> bool:
        """Whether to filter: it keeps less and takes no longer."""
        return self.filtered_bytes < self.exact_bytes and self.filtered_ms <= self.exact_ms

    def __str__(self) -> str:
        verdict = "filtered" if self.filtered else "exact"
        return (
            f"{self.layer}: {verdict}, since filtering takes {self.filtered_ms:.2f} instead of "
            f"{self.exact_ms:.2f} ms and keeps {self.filtered_bytes:,} instead of "
            f"{self.exact_bytes:,} bytes"
        )


@gradients_on()
def measure_filters(
    network: nn.Module,
    layers: Sequence[str],
    *,
    patch: int = 2,
    alignment: str = "natural",
    bits: int = 32,
    batch: int = 8,
    size: int = 224,
) -> list[FilterChoice]:
    """Time every layer's forward and backward pass, exact and filtered in turns.

    Maps are random, of the type and on the device of the network.

    Args:
        network: The network of the layers, not adapted; not changed.
        layers: Paths of convolutions, in a list.
        patch: See `FilteredConv2d`.
        alignment: See `FilteredConv2d`.
        bits: See `FilteredConv2d`.
        batch: Images of a step.
        size: Height and width of the images, in pixels.

    Returns:
        A choice for each layer that runs, in the order of `layers`.

    Raises:
        PocketuneError: A layer does not exist or cannot be filtered, the network is adapted
            already, or an argument is out of range.
    """
    refuse_adapted(network)
    check_filter(patch, alignment, bits)
    check_positive(batch=batch, size=size)
    if isinstance(layers, str):
        raise PocketuneError(f"layers={layers!r} must be a list of names; give [{layers!r}]")
    for name in layers:
        convolution(network, name)
    network = in_float(network)
    shapes = input_shapes(network, layers, (batch, 3, size, size))
    factory = partial(filter_convolution, patch=patch, alignment=alignment, bits=bits)
    return [
        _measure(name, network.get_submodule(name), shapes[name], factory)
        for name in layers
        if name in shapes
    ]


def _measure(name: str, conv: nn.Module, shape: tuple[int, ...], factory: Factory) -> FilterChoice:
    exact = copy.deepcopy(conv)
    filtered = factory(copy.deepcopy(conv))
    # maps are channels-last, since images come in as (N, H, W, 3)
    like = next(exact.parameters())
    x = torch.randn(shape, dtype=like.dtype, device=like.device)
    x = x.contiguous(memory_format=torch.channels_last).requires_grad_()
    g = torch.randn_like(exact(x))
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for layer, measured in zip((exact, filtered), times, strict=True):
            start = time.perf_counter()
            trained = [p for p in layer.parameters() if p.requires_grad]
            torch.autograd.grad(layer(x), [x, *trained], g)
            if x.is_cuda:
                torch.cuda.synchronize(x.device)
            measured.append(1000 * (time.perf_counter() - start))
    return FilterChoice(name, min(times[0]), min(times[1]), _kept(exact, x), _kept(filtered, x))


def _kept(layer: nn.Module, x: Tensor) -> int:
    """Bytes that a forward pass keeps for the backward pass, without parameters."""
    parameters = {parameter.data_ptr() for parameter in layer.parameters()}
    kept: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in parameters:
            kept.append(tensor.nbytes)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        layer(x)
    return sum(kept)
