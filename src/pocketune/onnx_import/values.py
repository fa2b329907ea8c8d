"""What a model computes from a few images, and which sides of its values count them."""

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from pocketune.device.engine.session import open_session
from pocketune.errors import PocketuneError, first_line

Array = NDArray[Any]


def _run(model: onnx.ModelProto, images: str, pixels: Array) -> dict[str, Array]:
    """All values of a model: its constants, and what each node gives for these images."""
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    names = [name for node in model.graph.node for name in node.output if name]
    del watched.graph.output[:]
    watched.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    try:
        session = open_session(watched.SerializeToString(), as_written=True)
        found = session.run(names, {images: pixels})
    except Exception as error:  # the runtime's own types, which have no common base
        raise PocketuneError(f"the runtime refuses the ONNX file: {first_line(error)}") from error
    values: dict[str, Array] = dict(zip(names, found, strict=True))
    for tensor in model.graph.initializer:
        values[tensor.name] = onnx.numpy_helper.to_array(tensor)
    values[images] = pixels
    return values


def run_twice(
    model: onnx.ModelProto, images: onnx.ValueInfoProto, pixels: Array
) -> tuple[Array, dict[str, Array], dict[str, Array] | None]:
    """The images of the first run, its values, and those for one image more.

    The last are None for a file of a fixed batch. A batch that is open at the input may be fixed
    inside: an exporter that has seen a single image writes its number into shapes.

    Args:
        model: The model.
        images: Its input.
        pixels: Images to run it on; only the first is taken if it refuses several.

    Raises:
        PocketuneError: The runtime refuses the model.
    """
    is_open = not images.type.tensor_type.shape.dim[0].dim_value
    try:
        values = _run(model, images.name, pixels)
    except PocketuneError:
        if not is_open:
            raise
        return pixels[:1], _run(model, images.name, pixels[:1]), None
    more = None
    if is_open:
        with contextlib.suppress(PocketuneError):
            more = _run(model, images.name, np.concatenate([pixels, pixels[:1]]))
    return pixels, values, more


def counted_sides(
    model: onnx.ModelProto,
    images: str,
    values: Mapping[str, Array],
    more: Mapping[str, Array] | None,
) -> dict[str, tuple[int, ...]]:
    """How often each side of a value counts the images; only values that have such a side.

    That is what differs in a second run with one image more. Without that run, the first side of
    every result that has as many rows as there are images counts them.

    Args:
        model: The model.
        images: Name of its input.
        values: Those of the first run.
        more: Those of the second run, if there was one.
    """
    if more is None:
        count = len(values[images])
        results = {images, *(name for node in model.graph.node for name in node.output)}
        return {
            name: (1, *(0 for _ in value.shape[1:]))
            for name, value in values.items()
            if name in results and value.shape[:1] == (count,)
        }
    found = {}
    for name, value in values.items():
        sides = tuple(b - a for a, b in zip(value.shape, more[name].shape, strict=True))
        if any(sides):
            found[name] = sides
    return found
