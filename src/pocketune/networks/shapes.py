"""What operators return on the meta device, remembered.

A network repeats its layers, and candidates of a plan repeat networks. PyTorch finds the shape of a
result in Python, for some operators in a millisecond.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pocketune.torch_private import LightDispatchMode, is_mutable, tree_leaves, without_dynamo

_MOST = 1 << 16
"""Results that are kept; a large network has some thousand."""

_metas: dict[tuple[Any, ...], Tensor] = {}
_results: dict[tuple[Any, str], Any] = {}


def meta(tensor: Tensor) -> Tensor:
    """The tensor on the meta device for all tensors of this shape, strides and type."""
    key = (*tensor.shape, *tensor.stride(), tensor.dtype)
    if key not in _metas:
        _metas[key] = empty_like(tensor)
    return _metas[key]


def empty_like(tensor: Tensor) -> Tensor:
    """A new tensor on the meta device, of the same shape, strides and type."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def result_on_meta(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What an operator returns, of tensors that `meta` made."""
    key = operator, repr(map_tensors((args, kwargs), id))
    if key not in _results:
        if len(_results) == _MOST:
            _results.clear()
        if "device" in kwargs:
            kwargs = {**kwargs, "device": "meta"}
        args, kwargs = map_tensors((args, kwargs), empty_like)  # the operator may change them
        _results[key] = map_tensors(without_dynamo(operator, *args, **kwargs), meta)
    return _results[key]


def tensors(values: Any) -> list[Tensor]:
    """Every tensor in nested lists, tuples and dictionaries, in order."""
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def map_tensors(value: Any, change: Callable[[Tensor], Any]) -> Any:
    """A value with other things in place of its tensors, also in tuples, lists and dictionaries."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, (tuple, list)):
        return type(value)([map_tensors(item, change) for item in value])
    if isinstance(value, dict):
        return {name: map_tensors(item, change) for name, item in value.items()}
    return value


class RememberedShapes(LightDispatchMode):
    """Operators on the meta device find the shapes of their results faster in this context.

    They also take the constants that a forward pass makes or holds on another device.
    """

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run an operator; its result is new."""
        kwargs = kwargs or {}
        if not any(tensor.is_meta for tensor in tensors((args, kwargs))):
            return func(*args, **kwargs)
        if is_mutable(func):
            args, kwargs = map_tensors((args, kwargs), _on_meta)
            return func(*args, **kwargs)
        args, kwargs = map_tensors((args, kwargs), meta)
        return map_tensors(result_on_meta(func, args, kwargs), empty_like)


def _on_meta(tensor: Tensor) -> Tensor:
    return tensor if tensor.is_meta else empty_like(tensor)
