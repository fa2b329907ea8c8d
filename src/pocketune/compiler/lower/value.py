"""What a node of the traced graph has become in the ONNX graph.

How a rule is written
    A rule takes `Value`s for the tensors of its operator, asks the context for them in the layout
    that it works in, adds ONNX nodes through `context.builder`, and returns a `Value` of its result
    in the layout that it came out in. Whoever reads the result converts it, once.

Layouts
    `plain` is the ONNX tensor of PyTorch's own shape; every rule may ask for it. `rows` holds a
    feature map (N, C, H, W) as the matrix (N*H*W, C), in which a 1x1 convolution is a matrix
    product and a sum over the pixels of each channel a product with ones. On maps of up to
    `ROWS_MAX_PIXELS` pixels rules prefer rows (`context.prefers_rows`), on larger ones the
    transposes around depthwise convolutions cost more than rows gain.

Values without a node
    A value can stand for another one without a node of its own: `constant` is known when
    compiling, `vector` is a tensor (C,) seen as (1, C, 1, 1), `expanded` is broadcast to `shape` by
    whoever reads it, `transposed` is read through the flags of `Gemm`.

The leading dimension
    A kit leaves two dimensions open: the number of images in its forward graphs, and the number of
    classes. The traced graph has numbers for both. The leading dimension of a tensor that is not
    constant is the batch or the number of classes, so that the rule of a view writes it as -1 and
    never as a number: such a view must not merge it with others in a way that depends on its size.
    A rule that needs the batch as a number, as a mean over all images does, serves the step alone,
    whose batch is fixed.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass
class Value:
    """A tensor of the step, in one or several layouts; see above.

    `shape` is the shape that PyTorch sees. Layouts are made on demand and remembered. `saved` is
    what a forward rule leaves for its backward rule instead of a tensor of PyTorch's form.
    """

    shape: tuple[int, ...]
    plain: str | None = None
    rows: str | None = None
    constant: Tensor | None = None
    expanded: Value | None = None
    vector: str | None = None
    transposed: Value | None = None
    saved: Mask | Normalized | None = None

    @property
    def is_map(self) -> bool:
        """Whether this is a batch of feature maps (N, C, H, W)."""
        return len(self.shape) == 4

    @property
    def pixels(self) -> int:
        """H * W of a map."""
        return self.shape[2] * self.shape[3]


@dataclass(frozen=True)
class Mask:
    """How a mask is kept: `value` holds it as it is, or `packed` its bits."""

    value: Value
    packed: str | None = None


@dataclass(frozen=True)
class Normalized:
    """What a group norm leaves for its gradient.

    The normalized input (1, N * groups, elements), and (N * groups,) sums of squared differences
    from the mean.
    """

    y: str
    squares: str
    eps: float
