"""All uses of PyTorch's private API.

Written for PyTorch 2.13 (`MADE_FOR`). Any release may change what is private; then only this file
changes, because all other modules use public names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch._decomp import get_decompositions
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.backends import mkldnn
from torch.utils import checkpoint
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import register_pytree_node, tree_leaves

__all__ = [
    "FakeTensorMode",
    "TorchDispatchMode",
    "UnsupportedOperatorException",
    "get_decompositions",
    "register_pytree_node",
    "tree_leaves",
]

MADE_FOR = "2.13"
"""The release of PyTorch that this file was written for."""

FUNCTIONAL_PAD: Any = torch._C._nn.pad
"""The function that a `TorchFunctionMode` receives for `torch.nn.functional.pad`."""


# ---- fake tensors


def data_dependent_errors() -> tuple[type[Exception], ...]:
    """Errors that PyTorch raises if a forward pass on fake tensors needs the value of a tensor.

    They are imported on demand, because they load sympy, which takes a third of a second.
    """
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    return DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode


# ---- dispatch modes

NO_TORCH_FUNCTION: Any = torch._C._disabled_torch_function_impl
"""The `__torch_function__` of a subclass of tensors whose results are tensors of any class."""


class LightDispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that does not load TorchDynamo, which takes a second, to tell it to keep away."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


_DYNAMO = "torch._dynamo"


def without_dynamo(operator: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What an operator returns that would load TorchDynamo, which takes a second.

    PyTorch's operators in Python load it in their first call, to tell it to keep away. If it is not
    loaded, there is nothing to keep away.
    """
    if _DYNAMO in sys.modules:
        return operator(*args, **kwargs)
    told: list[Any] = []

    def disable(function: Any, *_: Any, **__: Any) -> Any:
        told.append(function)
        return function

    stand_in: Any = ModuleType(_DYNAMO)
    stand_in.disable = disable
    sys.modules[_DYNAMO] = stand_in
    try:
        return operator(*args, **kwargs)
    except ImportError:  # it needs the real one
        del sys.modules[_DYNAMO]
        return operator(*args, **kwargs)
    finally:
        if sys.modules.get(_DYNAMO) is stand_in:
            del sys.modules[_DYNAMO]
        for function in told:
            vars(function).pop("__dynamo_disable", None)


@cache
def is_composite(operator: Any) -> bool:
    """Whether an operator is made of others on the CPU; its `decompose` runs them."""
    if operator.namespace == "prim":  # questions about a tensor
        return False
    kernel_for = torch._C._dispatch_has_kernel_for_dispatch_key
    name = operator.name()
    return kernel_for(name, "CompositeImplicitAutograd") and not kernel_for(name, "CPU")


@cache
def is_random(operator: Any) -> bool:
    """Whether an operator draws random numbers."""
    return torch.Tag.nondeterministic_seeded in operator.tags


@cache
def is_mutable(operator: Any) -> bool:
    """Whether an operator changes one of its arguments."""
    return bool(operator._schema.is_mutable)


@cache
def changes_first(operator: Any) -> bool:
    """Whether an operator writes its result into its first argument."""
    arguments = operator._schema.arguments
    alias = arguments[0].alias_info if arguments else None
    return alias is not None and bool(alias.is_write)


@cache
def out_of_place(operator: Any) -> Any | None:
    """The operator that returns as a new tensor what `operator` writes into its first argument.

    None if it does not write there, if it changes the shape, or if no other one computes the same.
    """
    if not changes_first(operator) or torch.Tag.inplace_view in operator.tags:
        return None
    name, overload = operator._schema.name.split("::")[1], operator._overloadname
    packet = getattr(getattr(torch.ops, operator.namespace), name.removesuffix("_"), None)
    plain = getattr(packet, overload, None)
    return None if plain is operator else plain


# ---- autograd and function transforms


def in_transform() -> bool:
    """Whether the code runs inside `torch.func.grad`, `vmap` or another transform."""
    return bool(torch._C._are_functorch_transforms_active())


def gradient_transforms() -> int:
    """Number of nested `torch.func.grad` transforms."""
    kinds = [level.key() for level in torch._C._functorch.get_interpreter_stack() or ()]
    return kinds.count(torch._C._functorch.TransformType.Grad)


def next_sequence_number() -> int:
    """The number that autograd will give to the next operator that it records."""
    return int(torch._C._autograd._get_sequence_nr())


def backward_sequence_number() -> int | None:
    """The number of the operator whose backward pass is running; None outside a backward pass.

    Nodes that accumulate the gradient of a parameter have numbers of 2^63 and above.
    """
    node = torch._C._current_autograd_node()
    return None if node is None else int(node._sequence_nr())


def storage_address(storage: torch.UntypedStorage) -> int:
    """A number that identifies a storage while it exists; fake storages have one too."""
    return int(storage._cdata)


def version(tensor: Tensor) -> int:
    """How often a tensor has been written into."""
    return int(tensor._version)


# ---- oneDNN


def matrix_product(a: Tensor, b: Tensor) -> Tensor:
    """`a @ b`, by oneDNN if possible, which takes 50 % to 90 % of the time of MKL."""
    onednn = mkldnn.is_available()  # type: ignore[no-untyped-call]
    if onednn and a.device.type == "cpu" and a.dtype == b.dtype == torch.float32:
        product: Tensor = torch.ops.mkldnn._linear_pointwise(a, b.t(), None, "none", [], "")
        return product
    return a @ b


def has_integer_convolution() -> bool:
    """Whether this build can convolve uint8 feature maps with int8 kernels."""
    return hasattr(torch.ops.onednn, "qconv2d_pointwise")


def pack_integer_kernel(kernel: Tensor, scale: Tensor, *numbers: Any) -> Tensor:
    """The kernel in the format of `integer_convolution`; it cannot be copied."""
    packed: Tensor = torch.ops.onednn.qconv_prepack(kernel, scale, *numbers)
    return packed


def integer_convolution(*arguments: Any) -> Tensor:
    """Convolve uint8 feature maps with a packed kernel, then apply an activation and round."""
    y: Tensor = torch.ops.onednn.qconv2d_pointwise(*arguments)
    return y


# ---- gradient checkpointing


@contextmanager
def uncheckpointed() -> Iterator[None]:
    """Make `torch.utils.checkpoint` keep what it would otherwise recompute in the backward pass.

    The recomputation would use the network's own values instead of the traced ones, and norms
    would update their running statistics twice.
    """
    replaced = {
        "CheckpointFunction": _Applied,
        "_checkpoint_without_reentrant_generator": _pass_over,
    }
    own = {name: getattr(checkpoint, name) for name in replaced}
    vars(checkpoint).update(replaced)
    try:
        yield
    finally:
        vars(checkpoint).update(own)


class _Applied:
    @staticmethod
    def apply(function: Callable[..., Any], _: bool, *args: Any) -> Any:
        return function(*args)


def _pass_over(*_: Any, **__: Any) -> Iterator[None]:
    yield
