"""The output layer of a network from a file."""

from collections.abc import Sequence

import torch
from torch import nn

from pocketune.networks.anatomy.modules import is_pointwise, weighs
from pocketune.onnx_import.file import OnnxFile
from pocketune.onnx_import.operators.layers import linear
from pocketune.onnx_import.parts import Function, Reshape, WithConstant

_SAME = (nn.Flatten, Reshape)
"""Modules that keep all elements."""


def with_linear_output(layers: Sequence[nn.Module], file: OnnxFile) -> list[nn.Module]:
    """The row with a linear layer where a 1x1 convolution of one pixel gives the class scores.

    Keras' MobileNetV3 ends so; on PyTorch, its bias is a sum behind a transpose.
    """
    place = max((place for place, layer in enumerate(layers) if weighs(layer)), default=0)
    last, scores = layers[place : place + 1], file.scores
    if not last or not isinstance(last[0], nn.Conv2d) or not is_pointwise(last[0]):
        return [*layers]
    conv, behind = last[0], layers[place + 1 :]
    sums = [each for each in behind if isinstance(each, WithConstant)]
    only_moves = all(isinstance(each, _SAME) or _is_transpose(each) for each in {*behind} - {*sums})
    only_adds = all(each.function is torch.add for each in sums)
    if not (only_moves and only_adds) or scores.ndim != 2 or scores.shape[1] != conv.out_channels:
        return [*layers]
    bias = torch.zeros(conv.out_channels) if conv.bias is None else conv.bias.data
    for each in sums:
        bias = bias + each.constant.flatten()
    kernel = conv.weight.data[:, :, 0, 0].numpy()
    return [*layers[:place], nn.Flatten(), linear(kernel, bias.numpy())]


def _is_transpose(module: nn.Module) -> bool:
    return isinstance(module, Function) and module.name == "Transpose"
