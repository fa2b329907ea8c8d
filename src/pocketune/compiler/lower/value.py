"""Values: tensors of the traced graph, as they are represented in the ONNX graph.

How a rule is written
    A rule takes `Value`s for the tensors of its operator, asks the context for them in the layout
    that it works in, adds ONNX nodes through `context.builder`, and returns a `Value` of its result
    in the layout that the nodes give. A rule that reads the result in another layout converts it;
    each conversion is done once.

Layouts
    `plain` is the ONNX tensor of PyTorch's own shape; every rule may ask for it. `rows` holds a
    feature map (N, C, H, W) as the matrix (N*H*W, C), in which a 1x1 convolution is a matrix
    product and a sum over the pixels of each channel a product with ones. On maps of up to
    `ROWS_MAX_PIXELS` pixels rules prefer rows (`context.prefers_rows`). On larger maps, the
    transposes around depthwise convolutions cost more than rows save.

Values without a node
    Some values need no node: `constant` is known when compiling, `vector` is a tensor (C,) viewed
    as (1, C, 1, 1), `expanded` is broadcast to `shape` by the rules that read it, and `transposed`
    is read through the flags of `Gemm`. `permuted` is a tensor and the order of its dimensions, and
    `merged` a tensor whose first dimensions are one here, as in a product in batches.

The leading dimension
    A kit leaves two dimensions open: the number of images in its forward graphs, and the number of
    classes. The traced graph has numbers for both. The leading dimension of a tensor that is not
    constant is the batch or the number of classes. The rule of a view therefore writes it as -1
    and never as a number, and must not merge it with others in a way that depends on its size.
    Maps of class scores are the exception: they are (N, classes, h, w). Rows would need both
    dimensions, so the rules of convolutions leave the maps around an `open` kernel plain.
    A rule that needs the batch as a number, such as that of a mean over all images, works only in
    the step, whose batch is fixed.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass
class Value:
    """A tensor of the step, in one or several layouts; see above.

    `shape` is the shape that PyTorch sees. Layouts are made on demand and remembered. `saved` is
    what a forward rule keeps for its backward rule in another form than PyTorch's tensor. Of an
    `open` kernel, the leading dimension is the number of classes. A `center` (C,) is what the
    tensor lacks of PyTorch's: a norm with batch statistics, which alone reads it, has the same
    output.
    """

    shape: tuple[int, ...]
    plain: str | None = None
    rows: str | None = None
    constant: Tensor | None = None
    expanded: Value | None = None
    vector: str | None = None
    transposed: Value | None = None
    permuted: tuple[Value, tuple[int, ...]] | None = None
    merged: Value | None = None
    saved: Mask | Normalized | Widened | Value | None = None
    open: bool = False
    center: str | None = None

    @property
    def is_map(self) -> bool:
        """Whether this is a batch of feature maps (N, C, H, W)."""
        return len(self.shape) == 4

    @property
    def one_for_all(self) -> Value | None:
        """Of a value that is the same for every image, as a class token is, the one; else None."""
        one = self.expanded
        is_one = one is not None and len(one.shape) == len(self.shape) and one.shape[0] == 1
        return one if is_one else None

    @property
    def pixels(self) -> int:
        """H * W of a map."""
        return self.shape[2] * self.shape[3]


@dataclass(frozen=True)
class Mask:
    """A mask kept for the backward pass: `value` holds its elements, `packed` its bits."""

    value: Value
    packed: str | None = None


@dataclass(frozen=True)
class Normalized:
    """What a group norm keeps for its gradient.

    `y` is the normalized input (1, N * groups, elements), `squares` (N * groups,) the sums of
    squared differences from the mean.
    """

    y: str
    squares: str
    eps: float


@dataclass(frozen=True)
class Widened:
    """What a 1x1 convolution and the norm behind it keep for their gradients.

    `x` is the input less its mean, and `covariance` the (K, K) of its channels; `inverse` and
    `scale` are the norm's.
    """

    x: Value
    kernel: Value
    covariance: str
    inverse: Value
    scale: Value
