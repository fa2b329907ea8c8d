"""Which function makes the module of an operator, and what these functions ask of a node."""

from collections.abc import Callable, Sequence

import numpy as np
from torch import nn

from pocketune.errors import PocketuneError
from pocketune.onnx_import.file import Node, OnnxFile
from pocketune.onnx_import.values import Array

Make = Callable[[Node, OnnxFile], nn.Module]
_makers: dict[str, Make] = {}


class NotSupported(PocketuneError):  # noqa: N818 (it is an answer, not a fault)
    """An operator, or an option of it, that has no module here."""


def make_module(node: Node, file: OnnxFile) -> nn.Module:
    """The module of a node; it takes the node's data inputs.

    Raises:
        NotSupported: There is none; the message names operator and node.
    """
    maker = _makers.get(node.kind)
    if maker is None:
        raise refusal(node, file, "is not supported yet")
    return maker(node, file)


def makes(*kinds: str) -> Callable[[Make], Make]:
    """Register a function that makes the modules of these operators."""

    def register(maker: Make) -> Make:
        _makers.update(dict.fromkeys(kinds, maker))
        return maker

    return register


def refusal(node: Node, file: OnnxFile, why: str) -> NotSupported:
    """The refusal of a node; `why` continues a sentence that begins with the operator."""
    return NotSupported(f"{file.path}: the operator {node.kind} ({node.where}) {why}")


def mixing(node: Node, file: OnnxFile, why: str) -> NotSupported:
    """The refusal of a node that reads across images, as `refusal`.

    In a file of a fixed batch it may only seem to: a side that counts images looks like any other.
    """
    return NotSupported(file.fixed_batch) if file.is_fixed else refusal(node, file, why)


def constant(node: Node, place: int, file: OnnxFile) -> Array | None:
    """The value of an input that does not depend on the pixels; None if it is left out."""
    name = node.inputs[place] if place < len(node.inputs) else ""
    if not name:
        return None
    if name in node.data:
        raise refusal(node, file, f"has an input {place + 1} that depends on the image")
    return file.once(name)


def required(node: Node, place: int, file: OnnxFile) -> Array:
    """The value of an input that must be there and does not depend on the pixels."""
    found = constant(node, place, file)
    if found is None:
        raise refusal(node, file, f"lacks its input {place + 1}")
    return found


def given(node: Node, name: str, place: int, file: OnnxFile) -> list[int] | None:
    """Numbers that are an attribute in older opsets and an input in newer ones."""
    if name in node.attributes:
        return [int(each) for each in np.atleast_1d(node.attributes[name])]
    found = constant(node, place, file)
    return None if found is None else [int(each) for each in found.reshape(-1)]


def keeps_images(node: Node, file: OnnxFile, axes: Sequence[int]) -> None:
    """Check that an operator along some axes does not mix the images of a batch."""
    counts = file.counts(node.data[0])
    if any(counts[axis] for axis in axes):
        raise mixing(node, file, "works along the images of a batch")
