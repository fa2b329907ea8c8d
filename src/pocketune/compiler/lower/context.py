"""Walk a traced graph and let the rule of each ATen operator add its ONNX nodes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor, fx

from pocketune.compiler.builder import GraphBuilder
from pocketune.compiler.lower.value import Value
from pocketune.compiler.passes.program import Constant, Program
from pocketune.errors import PocketuneError
from pocketune.objectives.base import Objective, Operand, objective_of_operator

Rule = Callable[..., "Value | tuple[Value | None, ...]"]
RULES: dict[Any, Rule] = {}

# Maps of at most this many pixels are kept as rows: there, a 1x1 convolution as a matrix product
# is a third faster than `Conv`, and channel sums are nearly free. On larger maps, the transposes
# around depthwise convolutions cost more than that.
ROWS_MAX_PIXELS = 14 * 14


def lowers(*targets: Any) -> Callable[[Rule], Rule]:
    """Register the rule of some operators: `rule(context, node, *args, **kwargs)`.

    Raises:
        PocketuneError: An operator has a rule already.
    """

    def register(rule: Rule) -> Rule:
        for target in targets:
            if target in RULES:
                raise PocketuneError(f"the operator {target} has a lowering rule already")
            RULES[target] = rule
        return rule

    return register


def list_lowerings() -> list[str]:
    """Names of the operators that have a rule, sorted; without those that only a pass makes."""
    return sorted(str(target) for target in RULES if not isinstance(target, FunctionType))


class Images(NamedTuple):
    """The number of images of a graph.

    Attributes:
        traced: That of the traced graph.
        source: A tensor with one for each image, in a graph for any number of them.
    """

    traced: int
    source: str | None = None


class Context:
    """The state of one lowering: the graph built so far and the value of each traced node."""

    def __init__(
        self,
        builder: GraphBuilder,
        *,
        rows_max_pixels: int = ROWS_MAX_PIXELS,
        least_packed: float = inf,
        images: Images | None = None,
    ) -> None:
        self.builder = builder
        self.images = images
        self.rows_max_pixels = rows_max_pixels
        self.least_packed = least_packed
        self.values: dict[fx.Node, Any] = {}
        self.statistics: dict[fx.Node, str] = {}

    # ---- reading the traced graph

    def lower(self, node: fx.Node) -> None:
        """Lower one node whose inputs have been lowered.

        Raises:
            PocketuneError: Its operator has no rule, or the rule refuses its arguments; the
                message names the module that runs the operator, if that is in the forward pass.
        """
        if node.target is operator.getitem:
            source, index = node.args
            self.values[node] = self.values[source][index]  # type: ignore[index]
            return
        rule = RULES.get(node.target) or _objective_rule(node.target) or _no_rule
        args = fx.map_arg(node.args, self.value)
        kwargs = fx.map_arg(node.kwargs, self.value)
        try:
            self.values[node] = rule(self, node, *args, **kwargs)
        except PocketuneError as error:
            module = node.meta.get("module")
            raise PocketuneError(f"module {module!r}: {error}" if module else str(error)) from error

    def value(self, node: fx.Node) -> Any:
        """The value that a traced node was lowered to."""
        return self.values[node]

    def finish(self, program: Program, wanted: Sequence[fx.Node]) -> None:
        """Make the results available under the nodes of the traced graph, too."""
        for original, node in zip(wanted, program.wanted, strict=True):
            self.values[original] = self.values[node]
        for original, node in program.copies.items():
            if node in self.statistics:
                self.statistics[original] = self.statistics[node]

    # ---- layouts

    def plain(self, value: Value) -> str:
        """The ONNX tensor of the value's own shape."""
        if value.plain is None:
            value.plain = self._make_plain(value)
        return value.plain

    def _make_plain(self, value: Value) -> str:
        b = self.builder
        if value.constant is not None:
            return b.constant(value.constant.detach().cpu().numpy())
        if value.expanded is not None:
            return b.add("Expand", self.plain(value.expanded), self._growth(value))
        if value.transposed is not None:
            return b.add("Transpose", self.plain(value.transposed), perm=[1, 0])
        if value.permuted is not None:
            source, dims = value.permuted
            return b.add("Transpose", self.plain(source), perm=dims)
        if value.merged is not None:
            return self.reshape(self.plain(value.merged), -1, *value.shape[1:])
        if value.vector is not None:
            return self.reshape(value.vector, *value.shape)
        assert value.rows is not None
        if value.pixels == 1:
            return self.reshape(value.rows, 0, -1, 1, 1)
        return b.add("Transpose", self.nhwc(value), perm=[0, 3, 1, 2], hint="nchw")

    def _growth(self, value: Value) -> str:
        """Target shape of `Expand`: 1 where the size stays the same, as the open batch does."""
        assert value.expanded is not None
        b, small = self.builder, value.expanded.shape
        before = (1,) * (len(value.shape) - len(small)) + small
        sizes = [1 if d == old else d for d, old in zip(value.shape, before, strict=True)]
        if self.images is None or not self.images.source or sizes[:1] != [self.images.traced]:
            return b.constant(np.array(sizes, np.int64))
        images = b.add("Shape", self.images.source, start=0, end=1)
        return b.add("Concat", images, b.constant(np.array(sizes[1:], np.int64)), axis=0)

    def rows(self, value: Value) -> str:
        """A map as the matrix (N*H*W, C)."""
        if value.rows is None:
            channels = value.shape[1]
            if value.constant is not None:
                matrix = value.constant.permute(0, 2, 3, 1).reshape(-1, channels)
                value.rows = self.builder.constant(matrix.cpu().numpy())
            elif value.vector is not None:
                value.rows = value.vector
            elif value.pixels == 1:
                value.rows = self.reshape(self.plain(value), 0, -1)
            else:
                nhwc = self.builder.add("Transpose", self.plain(value), perm=[0, 2, 3, 1])
                value.rows = self.reshape(nhwc, -1, channels)
        return value.rows

    def nhwc(self, value: Value) -> str:
        """A map as (N, H, W, C), from its rows."""
        _, channels, height, width = value.shape
        return self.reshape(self.rows(value), -1, height, width, channels)

    def prefers_rows(self, value: Value) -> bool:
        """Whether operators on this map should work on its rows."""
        return value.is_map and value.pixels <= self.rows_max_pixels

    def in_rows(self, value: Value) -> bool:
        """Whether a map is available as rows and not in PyTorch's layout."""
        return value.is_map and value.rows is not None and value.plain is None

    def at_hand(self, value: Value) -> str:
        """The tensor of a value in the layout that it has; maps may be in rows."""
        return self.rows(value) if self.in_rows(value) else self.plain(value)

    def laid_out_as(self, like: Value, name: str) -> Value:
        """A tensor with elements for those of `like`, in the order of its layout."""
        if self.in_rows(like):
            return Value(like.shape, rows=self.reshape(name, -1, like.shape[1]))
        return Value(like.shape, plain=self.reshape(name, *like.shape))

    # ---- small helpers of the rules

    def reshape(self, name: str, *shape: int) -> str:
        """Reshape an ONNX tensor; at most one entry is -1, and 0 stands for a size that stays."""
        return self.builder.add("Reshape", name, self.builder.constant(shape))


def constant_value(constant: Constant, images: int | None = None) -> Any:
    """A program's constant, as the rules take it.

    One that is the same for every image, such as the encoding of positions, is computed for the
    images of the trace. It becomes a broadcast one, because a kit leaves their number open. So does
    one that is the same for the windows of every image, (N * windows, ...), as the masks of shifted
    windows are.

    Args:
        constant: A tensor, or several.
        images: Number of images in the trace, if a kit leaves it open.
    """
    if not isinstance(constant, Tensor):
        return tuple(constant_value(each, images) for each in constant)
    shape, values = tuple(constant.shape), constant.detach()
    if len(shape) > 2 and shape[0] > 1:
        if _repeats(values):
            return Value(shape, expanded=Value((1, *shape[1:]), constant=values[:1]))
        if images is not None and shape[0] % images == 0:
            windows = values.reshape(images, -1, *shape[1:])
            if _repeats(windows):
                one = Value((1, *windows.shape[1:]), constant=windows[:1])
                return Value(shape, merged=Value(tuple(windows.shape), expanded=one))
    return Value(shape, constant=values)


def _repeats(values: Tensor) -> bool:
    return bool((values == values[:1]).all())


def _no_rule(_: Context, node: fx.Node, *__: Any, **___: Any) -> Value:
    raise PocketuneError(
        f"no ONNX lowering for the operator {node.target}; register one with "
        "pocketune.compiler.lower.lowers, or write the layer with other operators"
    )


def _objective_rule(operator: object) -> Rule | None:
    """The rule of the loss of a task, which its objective lowers; None for other operators."""
    objective = objective_of_operator(operator)
    return None if objective is None else partial(_lower_objective, objective)


def _lower_objective(
    objective: type[Objective],
    context: Context,
    _node: fx.Node,
    outputs: Value,
    labels: Value,
    *arguments: Any,
) -> tuple[Value, ...]:
    """The scalars, and last the gradient with respect to the outputs."""
    operands = (
        Operand(context.plain(a), a.shape) if isinstance(a, Value) else a
        for a in (outputs, labels, *arguments)
    )
    names = objective.lower(context.builder, *operands)
    *scalars, gradient = names
    return *(Value((), plain=name) for name in scalars), Value(outputs.shape, plain=gradient)
