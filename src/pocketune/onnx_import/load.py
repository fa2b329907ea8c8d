"""Networks from ONNX files."""

from os import PathLike
from pathlib import Path

import torch
from torch import nn

from pocketune.errors import PocketuneError, first_line
from pocketune.files import shown
from pocketune.networks.about import Normalization, set_about
from pocketune.networks.anatomy.output import find_output, only_layer
from pocketune.networks.architectures.parts import initialize_linear
from pocketune.onnx_import.blocks import with_blocks
from pocketune.onnx_import.build import Builder
from pocketune.onnx_import.file import OnnxFile, read_file
from pocketune.onnx_import.normalization import own_normalization
from pocketune.onnx_import.output import with_linear_output
from pocketune.onnx_import.parts import OnnxNetwork

TOLERANCE = 1e-4
"""Largest difference from the file's own output, relative to the largest score."""


def load_onnx(
    path: str | PathLike[str],
    *,
    size: int = 224,
    classes: int | None = None,
    normalization: Normalization | None = None,
) -> nn.Module:
    """The network in an ONNX file, as a module that can be adapted and compiled.

    Operators on shapes are replaced by their results. A softmax at the end is left out. Norms that
    the exporter has folded into convolutions become norms again that only add a bias: call
    `restore_batch_norm` before such a norm is trained. Inverted residuals, the blocks of ResNets
    and squeeze-and-excitations are found by how the operators are connected, so that methods that
    need blocks apply. The result is compared with the file's own output.

    Args:
        path: A file with one input, float32 images (N, 3, H, W) or (N, H, W, 3), and one output,
            the class scores (N, classes).
        size: Side of the images, in pixels.
        classes: Outputs of the network; another number than the file's initializes the output
            layer, uniform in +-1 / sqrt(fan in).
        normalization: Normalization of the images that the file takes. By default that of the
            pixels that it normalizes itself, or ImageNet's if it does not.

    Raises:
        PocketuneError: The file cannot be read, has control flow, several inputs or outputs, images
            of another size or an operator that is not supported, which the message names; its
            scores come from no linear layer; or the module computes something else than the file.

    Example:
        >>> network = load_onnx("mobilenet_v2.onnx", classes=5)  # doctest: +SKIP
    """
    file = read_file(Path(path), size)
    layers = Builder(file).chain(file.input, file.nodes)
    layers = with_linear_output(with_blocks(layers), file)
    network = OnnxNetwork(layers, channels_last=file.channels_last)
    _compare(network, file)
    _require_any_batch(network, file)
    name = f"{shown(file.path.stem, 40)}.onnx"  # no registered network has the suffix
    set_about(network, name=name, normalization=normalization or own_normalization(file))
    if classes is not None:
        with_classes(network, classes, size)
    return network.train()


def _compare(network: nn.Module, file: OnnxFile) -> None:
    images = torch.tensor(file.images)
    try:
        with torch.no_grad():
            found = network.eval()(images)
    except (RuntimeError, ValueError) as error:
        raise PocketuneError(
            f"the network made from {file.path} cannot run: {first_line(error)}"
        ) from error
    expected = torch.tensor(file.scores)
    if found.shape != expected.shape:
        raise PocketuneError(
            f"{file.path} gives scores of shape {tuple(expected.shape)}, and the network made from "
            f"it {tuple(found.shape)}"
        )
    difference = float((found - expected).abs().max() / expected.abs().max().clamp(min=1e-6))
    if not difference <= TOLERANCE:  # also true for nan
        raise PocketuneError(
            f"the network made from {file.path} differs from the file by {difference:.1e} of the "
            f"largest score, more than {TOLERANCE:.0e}"
        )


def _require_any_batch(network: nn.Module, file: OnnxFile) -> None:
    """Refuse a network that cannot take one image more than the file was read with."""
    images = torch.tensor(file.images)
    try:
        with torch.no_grad():
            fits = len(network.eval()(torch.cat([images, images[:1]]))) == len(images) + 1
    except RuntimeError:  # a shape that counts the images, as attention by one product has it
        fits = False
    if not fits:
        raise PocketuneError(file.fixed_batch)


def output_classes(network: nn.Module, size: int) -> int:
    """The number of class scores of a network; see `with_classes`."""
    return _output_layer(network, size)[1].out_features


def with_classes(network: nn.Module, classes: int, size: int) -> nn.Module:
    """The network with so many classes: another number initializes its output layer, in place.

    Args:
        network: Any network.
        classes: Number of class scores.
        size: Side of its images, in pixels.

    Raises:
        PocketuneError: The class scores come from no linear layer.
    """
    path, layer = _output_layer(network, size)
    if layer.out_features != classes:
        made = nn.Linear(layer.in_features, classes)
        initialize_linear(made)
        network.set_submodule(path, made, strict=True)
    return network


def _output_layer(network: nn.Module, size: int) -> tuple[str, nn.Linear]:
    """The path of the layer that computes the class scores, and the layer."""
    path = only_layer(network, find_output(network, size))
    layer = network.get_submodule(path)
    if not isinstance(layer, nn.Linear):
        raise PocketuneError(
            f"the class scores come from a {type(layer).__name__}; export a network whose last "
            "layer is linear"
        )
    return path, layer
