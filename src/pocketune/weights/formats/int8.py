"""Weights that are published in 8 bits: int8 kernels and the formats of feature maps.

Such an `.npz` file holds for each layer, named as in folded files,

* `<layer>.weight_q`: int8, the quantized kernel,
* `<layer>.w_scale`: float32 (out,), the scale of each output channel,
* `<layer>.bias_q`: int32 (out,), in units of `w_scale * x_scale`,
* `<layer>.io`: `x_scale, x_zero, y_scale, y_zero`, the formats of input and output as int8.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pocketune.errors import PocketuneError
from pocketune.files import ARCHIVE_DAMAGE, reading
from pocketune.layers import QuantizedConv2d, Uint8
from pocketune.networks.about import Normalization
from pocketune.networks.anatomy.anatomy import anatomy
from pocketune.networks.config import NetworkConfig
from pocketune.weights.formats.folded import load_folded, places

INT8 = ".npz"  # suffix of such files
SIGNED = 128  # the zero of int8 as uint8


class _Layer(NamedTuple):
    whole: Tensor
    scale: Tensor
    bias: Tensor
    format: Uint8


def load_int8(
    network: nn.Module,
    config: NetworkConfig,
    path: Path,
    normalization: Normalization | None,
) -> Normalization:
    """Replace every convolution by a `QuantizedConv2d` with the file's int8 kernel.

    Each norm becomes the identity plus the bias. The classifier, which every method trains, is
    float32.

    Raises:
        PocketuneError: The file is damaged, and as `load_folded`.
    """
    layers = _read(path)
    state = {f"{name}.weight": layer.whole for name, layer in layers.items()}
    state |= {f"{name}.bias": layer.bias for name, layer in layers.items()}
    if (output := layers.get("classifier")) is not None:
        state["classifier.weight"] = output.whole * output.scale.view(-1, 1, 1, 1)
    known = load_folded(network, config, state, path, normalization)
    for name, place in places(anatomy(network)):
        conv = network.get_submodule(place.conv)
        assert isinstance(conv, nn.Conv2d)
        rounded = QuantizedConv2d.from_convolution(conv)
        rounded.weight_int8, rounded.weight_scale = layers[name].whole, layers[name].scale
        rounded.input_format = layers[name].format
        network.set_submodule(place.conv, rounded)
    return known


def has_fusion(path: Path) -> bool:
    """Whether a file has weights of a feature-fusion layer."""
    return "head" in _read(path)


def kernel_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of the kernels in a file, by name.

    Raises:
        PocketuneError: The file is missing or damaged.
    """
    return {f"{name}.weight": tuple(layer.whole.shape) for name, layer in _read(path).items()}


def _read(path: Path) -> dict[str, _Layer]:
    if not path.is_file():
        raise PocketuneError(f"there is no weights file {path}")
    damage = (ValueError, KeyError, *ARCHIVE_DAMAGE)
    with reading(f"the 8-bit weights {path}", *damage), np.load(path) as arrays:
        names = [name.removesuffix(".weight_q") for name in arrays if ".weight_q" in name]
        layers = {name: _layer(arrays, name) for name in names}
    if not layers:
        raise PocketuneError(f"{path} holds no weights of 8 bits: it has no '.weight_q'")
    return layers


def _layer(arrays: np.lib.npyio.NpzFile, name: str) -> _Layer:
    whole, scale = arrays[f"{name}.weight_q"], arrays[f"{name}.w_scale"]
    x_scale, x_zero = (float(value) for value in arrays[f"{name}.io"][:2])
    if whole.dtype != np.int8 or scale.shape != whole.shape[:1]:
        raise ValueError(f"{name} has {whole.dtype} {whole.shape} and scales {scale.shape}")
    bias = arrays[f"{name}.bias_q"] * scale.astype(np.float64) * x_scale
    return _Layer(
        torch.from_numpy(whole),
        torch.from_numpy(scale.astype(np.float32)),
        torch.from_numpy(bias.astype(np.float32)),
        Uint8(x_scale, round(x_zero) + SIGNED),
    )
