"""Record the ATen operators of a function, its backward passes included, as a graph."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from pocketune.compiler.capture.views import View, view_of
from pocketune.networks.shapes import map_tensors, meta, result_on_meta
from pocketune.torch_private import (
    NO_TORCH_FUNCTION,
    LightDispatchMode,
    changes_first,
    is_composite,
    is_mutable,
    is_random,
    out_of_place,
    tree_leaves,
)

Decompositions = Mapping[Any, Callable[..., Any]]


class DataDependentError(Exception):
    """The function asks for the value of a tensor that has none while it is traced."""


def trace(
    function: Callable[..., Any],
    *inputs: Any,
    decompositions: Decompositions | None = None,
    running: Sequence[str] = (),
) -> fx.Graph:
    """Run a function on tensors without data, and write down its operators.

    PyTorch's `make_fx` records the same operators, in several times as long.

    Args:
        function: Returns a list of tensors.
        inputs: Tensors and dictionaries of tensors, in the order of the graph's placeholders.
        decompositions: Functions that run simpler operators in place of an operator.
        running: What names the modules that run, the innermost last, while the function runs.

    Returns:
        The graph. `meta["val"]` of a node is its tensor on the meta device, or several, and
        `meta["module"]` is the name of the module that runs, if there is one. Tensors
        that depend on no input are computed at once, and are `get_attr` nodes with their value in
        `meta["constant"]`.

    Raises:
        DataDependentError: The function asks for the value of a tensor.
    """
    tracer = _Tracer(decompositions or {}, running)
    arguments = [tracer.inputs(given) for given in inputs]
    with tracer:
        results = function(*arguments)
    tracer.graph.output([tracer.node(result) for result in results])
    return tracer.graph


class TracedTensor(Tensor):
    """What the traced function sees: a tensor on the CPU, which has no data.

    Attributes:
        node: Computes it in the graph.
    """

    node: fx.Node
    __torch_function__ = NO_TORCH_FUNCTION

    @staticmethod
    def __new__(cls, like: Tensor, node: fx.Node) -> TracedTensor:
        """The tensor that `node` computes, of the shape, strides and type of `like`."""
        made = Tensor._make_wrapper_subclass(
            cls, like.shape, like.stride(), dtype=like.dtype, device=torch.device("cpu")
        )
        made.node = node
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Refuse to run."""
        raise RuntimeError(
            f"{func} reads the values of a tensor, as print does, or one that was kept from an "
            "earlier trace"
        )


class _Tracer(LightDispatchMode):
    """Writes each operator that runs as a node."""

    def __init__(self, decompositions: Decompositions, running: Sequence[str]) -> None:
        super().__init__()
        self.graph = fx.Graph()
        self._decompositions = decompositions
        self._running = running
        self._constants: dict[int, tuple[Tensor, fx.Node]] = {}
        """Constants, which stay alive, and their nodes, by the identity of the constants."""
        self._written: set[int] = set()
        """Identities of constants that an operator has written traced values into."""
        self._views: dict[int, View] = {}
        """Views, which stay alive, by their identity."""
        self._views_of: dict[int, list[View]] = {}
        """The same by the identity of the tensor behind them."""
        self._follows = True
        """Whether new views are remembered."""

    def inputs(self, given: Any) -> Any:
        """Placeholders for these tensors, in the same structure."""
        if isinstance(given, dict):
            return {name: self.inputs(tensor) for name, tensor in given.items()}
        made = self._made(meta(given), self.graph.placeholder(f"input_{len(self.graph.nodes)}"))
        return made.requires_grad_(given.requires_grad)

    def node(self, tensor: Tensor) -> fx.Node:
        """The node of a tensor; one that is not traced is a constant."""
        if isinstance(tensor, TracedTensor):
            return tensor.node
        if id(tensor) not in self._constants:
            node = self.graph.create_node("get_attr", f"constant_{len(self._constants)}")
            node.meta.update(constant=tensor, val=meta(tensor))
            self._constants[id(tensor)] = tensor, node
        return self._constants[id(tensor)][1]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run an operator and write its node, or those of its simpler operators."""
        kwargs = kwargs or {}
        if (plain := out_of_place(func)) is not None:
            return self._in_place(plain, args, kwargs)
        simpler = func.decompose if is_composite(func) else self._decompositions.get(func)
        if simpler is not None:
            with self:
                result = simpler(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if not (self._traces(types, args) or is_mutable(func) or is_random(func)):
            return self._noted(func, args, func(*args, **kwargs))
        if torch.Tag.data_dependent_output in func.tags:
            raise DataDependentError(str(func))
        result = result_on_meta(func, *map_tensors((args, kwargs), self._meta))
        node = self.graph.call_function(func, *map_tensors((args, kwargs), self.node))
        if self._running:
            node.meta["module"] = self._running[-1]
        made = self._noted(func, args, self._made(result, node))
        if changes_first(func):
            self._assign(args[0], node)
        return made

    def _in_place(self, plain: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """Give the first tensor the values that an operator computes in a new one."""
        changed: Tensor = args[0]
        with self:
            result = plain(*args, **kwargs).to(changed.dtype)
        self._assign(changed, self.node(result))
        return changed

    def _noted(self, func: Any, args: tuple[Any, ...], result: Any) -> Any:
        """The result of an operator, which is remembered if it is a view."""
        if self._follows and (view := view_of(func, args, result)) is not None:
            self._views[id(result)] = view
            self._views_of.setdefault(id(args[0]), []).append(view)
        return result

    def _traces(self, types: Any, args: tuple[Any, ...]) -> bool:
        """Whether an operator depends on an input."""
        return TracedTensor in types or bool(
            self._written and self._written.intersection(map(id, tree_leaves(args)))
        )

    def _meta(self, tensor: Tensor) -> Tensor:
        made: Tensor = self.node(tensor).meta["val"]
        return made

    def _assign(self, tensor: Tensor, node: fx.Node) -> None:
        """Let later readers of a tensor, of what is behind it and of its views read new values."""
        self._set(tensor, node)
        self._follows = False
        with self:
            self._read_views(tensor)
            written = tensor
            while (view := self._views.get(id(written))) is not None:
                self._set(view.whole, self.node(view.written()))
                self._read_views(view.whole, but=written)
                written = view.whole
        self._follows = True

    def _read_views(self, tensor: Tensor, but: Tensor | None = None) -> None:
        """Read the views of a tensor again, but one that has the new values."""
        for view in self._views_of.get(id(tensor), ()):
            if view.view is not but:
                self._set(view.view, self.node(view.read()))
                self._read_views(view.view)

    def _set(self, tensor: Tensor, node: fx.Node) -> None:
        if isinstance(tensor, TracedTensor):
            tensor.node = node
        else:
            self._constants[id(tensor)] = tensor, node
            self._written.add(id(tensor))

    def _made(self, result: Any, node: fx.Node) -> Any:
        """What the function gets of an operator that returns `result` on the meta device."""
        node.meta["val"] = result
        if isinstance(result, Tensor):
            return TracedTensor(result, node)
        if not isinstance(result, (tuple, list)):
            return result
        parts = [self.graph.call_function(operator.getitem, (node, i)) for i in range(len(result))]
        return type(result)(map(self._made, result, parts))
