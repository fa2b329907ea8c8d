"""Operators that move elements, and resizing."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from pocketune.onnx_import.file import Node, OnnxFile
from pocketune.onnx_import.operators.registry import (
    constant,
    given,
    keeps_images,
    makes,
    mixing,
    refusal,
    required,
)
from pocketune.onnx_import.parts import (
    ConcatWithConstants,
    Function,
    IndexSelect,
    Reshape,
    tensor_of,
)
from pocketune.onnx_import.values import Array


@makes("Pad")
def _pad(node: Node, file: OnnxFile) -> nn.Module:
    pads, axes = given(node, "pads", 1, file), given(node, "axes", 3, file)
    value = constant(node, 2, file)
    if pads is None or node.attributes.get("mode", b"constant") != b"constant":
        raise refusal(node, file, "does not pad by a constant")
    rank, half = file.values[node.data[0]].ndim, len(pads) // 2
    places = [axis % rank for axis in (range(rank) if axes is None else axes)]
    pairs = dict(zip(places, zip(pads[:half], pads[half:], strict=True), strict=True))
    keeps_images(node, file, [axis for axis, pair in pairs.items() if any(pair)])
    sides = [side for axis in range(rank)[::-1] for side in pairs.get(axis, (0, 0))]
    number = node.attributes.get("value", 0.0)
    if value is not None and value.size:
        number = value.reshape(-1)[0]
    return Function("Pad", partial(functional.pad, pad=sides, value=float(number)))


@makes("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand")
def _reshape(node: Node, file: OnnxFile) -> nn.Module:
    """All of them by the shape of their result, of which some sides count the images."""
    result, counts = file.values[node.output].shape, file.counts(node.output)
    given = file.counts(node.data[0])
    if not any(given) or not any(counts):
        raise mixing(node, file, "mixes the images of a batch")
    expands = node.kind == "Expand"
    usual = [(1, *(0 for _ in sides[1:])) for sides in (given, counts)] == [given, counts]
    if usual and not expands:
        if len(result) == 2:
            return nn.Flatten()
        return nn.Unflatten(1, result[1:]) if len(given) == 2 else Reshape(result[1:])
    return Reshape(result, given=given, counts=counts, expands=expands)


@makes("Tile")
def _tile(node: Node, file: OnnxFile) -> nn.Module:
    repeats = [int(each) for each in required(node, 1, file)]
    if file.counts(node.data[0]) != file.counts(node.output):
        raise refusal(node, file, "repeats images")
    return Function("Tile", partial(torch.tile, dims=repeats))


@makes("Transpose")
def _transpose(node: Node, file: OnnxFile) -> nn.Module:
    order = list(node.attributes.get("perm", range(file.values[node.data[0]].ndim)[::-1]))
    return Function("Transpose", partial(torch.permute, dims=order))


@makes("Split")
def _split(node: Node, file: OnnxFile) -> nn.Module:
    """One output of it; see `file._parts`."""
    axis, start, count = (int(node.attributes[name]) for name in ("axis", "start", "count"))
    keeps_images(node, file, [axis])
    return Function("Split", partial(torch.narrow, dim=axis, start=start, length=count))


@makes("Slice")
def _slice(node: Node, file: OnnxFile) -> nn.Module:
    starts, ends = (given(node, name, place, file) for name, place in (("starts", 1), ("ends", 2)))
    axes, steps = given(node, "axes", 3, file), given(node, "steps", 4, file)
    if starts is None or ends is None:
        raise refusal(node, file, "has no limits")
    sides = file.values[node.data[0]].shape
    axes = list(range(len(starts))) if axes is None else [axis % len(sides) for axis in axes]
    steps = steps or [1] * len(starts)
    if len(steps) == 1 and steps[0] < 0:  # as of the colors, for networks of blue, green, red
        keeps_images(node, file, axes)
        order = range(*slice(starts[0], ends[0], steps[0]).indices(sides[axes[0]]))
        return IndexSelect(axes[0], torch.tensor(order))
    if min(steps) < 1:
        raise refusal(node, file, "runs backward along several axes")
    places = [slice(None)] * len(sides)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        begin, stop, _ = slice(start, end).indices(sides[axis])
        if (begin, stop, step) != (0, sides[axis], 1):
            keeps_images(node, file, [axis])
            places[axis] = slice(begin, stop, step)
    return Function("Slice", lambda x: x[tuple(places)])


@makes("Gather")
def _gather(node: Node, file: OnnxFile) -> nn.Module:
    if node.inputs[0] not in node.data:
        raise refusal(node, file, "takes its indices from the image")
    if _takes_all_in_order(file.values[node.inputs[0]], file.values[node.inputs[1]]):
        return _reshape(node, file)
    indices = required(node, 1, file)
    axis = int(node.attributes.get("axis", 0)) % file.values[node.data[0]].ndim
    keeps_images(node, file, [axis])
    if indices.ndim == 0:
        return Function("Gather", partial(torch.select, dim=axis, index=int(indices)))
    places = torch.tensor(indices) % file.values[node.data[0]].shape[axis]
    taken = IndexSelect(axis, places.flatten())
    return taken if places.ndim == 1 else nn.Sequential(taken, nn.Unflatten(axis, places.shape))


@makes("GatherND")
def _gather_nd(node: Node, file: OnnxFile) -> nn.Module:
    """Places along the first axes at once, as PyTorch exports several indices."""
    places = required(node, 1, file)
    sides = file.values[node.data[0]].shape[: places.shape[-1]]
    if node.attributes.get("batch_dims", 0):
        raise refusal(node, file, "has indices for each image")
    keeps_images(node, file, range(len(sides)))
    flat = np.ravel_multi_index(tuple(np.moveaxis(places, -1, 0)), sides, mode="wrap")
    taken = IndexSelect(0, torch.tensor(flat.reshape(-1)))
    return nn.Sequential(nn.Flatten(0, len(sides) - 1), taken, nn.Unflatten(0, flat.shape))


@makes("ScatterND")
def _scatter_nd(node: Node, file: OnnxFile) -> nn.Module:
    """Values written to a part of a tensor, as in `x[:, 1:] = y`."""
    if node.attributes.get("reduction", b"none") != b"none" or len(node.data) != 2:
        raise refusal(node, file, "adds at places, or has a constant among its tensors")
    places, sides = file.values[node.inputs[1]], file.values[node.data[0]].shape
    part = tuple(
        slice(int(first), int(last) + 1, max(int(last - first) // max(count - 1, 1), 1))
        for first, last, count in zip(
            places[(0,) * (places.ndim - 1)],
            places[(-1,) * (places.ndim - 1)],
            places.shape[:-1],
            strict=False,
        )
    )
    steps = [np.arange(side)[each] for side, each in zip(sides, part, strict=False)]
    if not np.array_equal(places, np.stack(np.meshgrid(*steps, indexing="ij"), -1)):
        raise refusal(node, file, "writes to places that are not a part of each dimension")
    whole = [each.size == side for each, side in zip(steps, sides, strict=False)]
    keeps_images(node, file, [axis for axis, all_of_it in enumerate(whole) if not all_of_it])
    part = tuple(slice(None) if w else each for w, each in zip(whole, part, strict=True))
    return Function("ScatterND", partial(_written, part=part))


def _written(x: Tensor, values: Tensor, part: tuple[slice, ...]) -> Tensor:
    x = x.clone()
    x[part] = values
    return x


def _takes_all_in_order(values: Array, indices: Array) -> bool:
    """Whether indices give a flat value another shape, as PyTorch exports `as_strided`.

    It does so for a global pool of a map whose channels come last in memory.
    """
    return values.ndim == 1 and np.array_equal(indices.reshape(-1), np.arange(values.size))


@makes("Concat")
def _concat(node: Node, file: OnnxFile) -> nn.Module:
    axis = int(node.attributes["axis"]) % file.values[node.output].ndim
    keeps_images(node, file, [axis])
    if len(node.data) == len(node.inputs):
        return Function("Concat", lambda *inputs: torch.cat(inputs, axis))
    constants = [None if n in node.data else tensor_of(file.once(n)) for n in node.inputs]
    return ConcatWithConstants(axis, constants)


@makes("Resize", "Upsample")
def _resize(node: Node, file: OnnxFile) -> nn.Module:
    sides = file.values[node.output].shape
    if len(sides) != 4 or sides[:2] != file.values[node.data[0]].shape[:2]:
        raise refusal(node, file, "resizes something else than rows and columns")
    mode = node.attributes.get("mode", b"nearest").decode()
    corners = node.attributes.get("coordinate_transformation_mode", b"half_pixel").decode()
    size = (int(sides[2]), int(sides[3]))
    if mode == "nearest":
        return _checked(partial(functional.interpolate, size=size), node, file)
    if mode not in ("linear", "cubic"):
        raise refusal(node, file, f"has the mode {mode}")
    if corners not in ("half_pixel", "pytorch_half_pixel", "align_corners"):
        raise refusal(node, file, f"has the coordinates {corners}; export it with half_pixel")
    aligned = corners == "align_corners"
    target: dict[str, Any] = {"size": size}
    if not aligned and (scales := _scales(node, file)) is not None:
        before = file.shape(node.data[0])[1:]
        if size == tuple(int(s * side) for s, side in zip(scales, before, strict=True)):
            target = {"scale_factor": scales}  # of which a pixel's place follows, not of the sizes
    kind = "bilinear" if mode == "linear" else "bicubic"
    resize = partial(functional.interpolate, mode=kind, align_corners=aligned, **target)
    return _checked(resize, node, file)


def _scales(node: Node, file: OnnxFile) -> tuple[float, float] | None:
    """How many times a Resize or an Upsample enlarges rows and columns, if it has that."""
    found = constant(node, 2 if node.kind == "Resize" and file.opset > 10 else 1, file)
    if found is None or not found.size:
        return None
    places = [axis % 4 for axis in node.attributes.get("axes", range(4))]
    scales = dict(zip(places, found.tolist(), strict=True))
    return scales.get(2, 1.0), scales.get(3, 1.0)


def _checked(resize: Callable[[Tensor], Tensor], node: Node, file: OnnxFile) -> Function:
    """The module of a Resize, many of whose options PyTorch lacks, if it computes the same."""
    found = resize(torch.tensor(file.values[node.data[0]]))
    expected = torch.tensor(file.values[node.output])
    if not torch.allclose(found, expected, atol=1e-4 * float(expected.abs().max())):
        raise refusal(node, file, "has options that torch.nn.functional.interpolate lacks")
    return Function("Resize", resize)


@makes("Col2Im")
def _from_windows(node: Node, file: OnnxFile) -> nn.Module:
    size, kernel = (tuple(map(int, required(node, place, file))) for place in (1, 2))
    stride, dilation = (
        tuple(node.attributes.get(name, (1, 1))) for name in ("strides", "dilations")
    )
    pads = tuple(node.attributes.get("pads", (0,) * 4))
    if len(size) != 2 or pads[:2] != pads[2:]:
        raise refusal(node, file, "is not two-dimensional, or pads unequally")
    return Function("Col2Im", nn.Fold(size, kernel, dilation, pads[:2], stride))


@makes("DepthToSpace")
def _depth_to_space(node: Node, file: OnnxFile) -> nn.Module:
    if node.attributes.get("mode", b"DCR") != b"CRD":
        raise refusal(node, file, "has the order DCR")
    return nn.PixelShuffle(int(node.attributes["blocksize"]))


@makes("SpaceToDepth")
def _space_to_depth(node: Node, file: OnnxFile) -> nn.Module:
    """The places in a block come before the channels, and not behind as in PyTorch."""
    side = int(node.attributes["blocksize"])
    channels = file.shape(node.data[0])[0]
    order = torch.arange(channels * side * side).view(channels, -1).T.flatten()
    return nn.Sequential(nn.PixelUnshuffle(side), IndexSelect(1, order))
