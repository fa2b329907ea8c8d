"""The modules of an imported network that PyTorch has no name for."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn


class Function(nn.Module):
    """An operator without parameters.

    Args:
        name: Its name in the ONNX file.
        function: Takes the tensors that it reads.
    """

    def __init__(self, name: str, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.name = name
        self.function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        """The operator's result."""
        return self.function(*inputs)

    def extra_repr(self) -> str:
        """The operator's name."""
        return self.name


class WithConstant(nn.Module):
    """An elementwise operator of a tensor and a constant.

    Args:
        function: Takes the two in the file's order.
        constant: Broadcast against the tensor.
        first: Whether the constant is the first operand.
    """

    def __init__(
        self, function: Callable[[Tensor, Tensor], Tensor], constant: Tensor, *, first: bool
    ) -> None:
        super().__init__()
        self.function = function
        self.first = first
        self.register_buffer("constant", constant)
        self.constant: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """`constant op x` or `x op constant`."""
        return self.function(self.constant, x) if self.first else self.function(x, self.constant)


class ConcatWithConstants(nn.Module):
    """A concatenation of tensors and constants, such as a class token before the tokens.

    Args:
        axis: The axis along which they are joined.
        constants: For each operand, a constant that is repeated for each image; None for a tensor.
    """

    def __init__(self, axis: int, constants: Sequence[Tensor | None]) -> None:
        super().__init__()
        self.axis = axis
        self.places = [constant is None for constant in constants]
        self.constants = nn.ParameterList(
            nn.Parameter(constant, requires_grad=False)
            for constant in constants
            if constant is not None
        )

    def forward(self, *inputs: Tensor) -> Tensor:
        """The tensors and the constants in the file's order."""
        tensors, constants = iter(inputs), iter(self.constants)
        sides = list(inputs[0].shape)
        sides[self.axis] = -1  # that of the constant
        parts = [next(tensors) if here else next(constants).expand(sides) for here in self.places]
        return torch.cat(parts, self.axis)


class IndexSelect(nn.Module):
    """Some places along an axis.

    Args:
        axis: The axis.
        indices: (K,), whole numbers.
    """

    def __init__(self, axis: int, indices: Tensor) -> None:
        super().__init__()
        self.axis = axis
        self.register_buffer("indices", indices)
        self.indices: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """The same number of dimensions, with K places along the axis."""
        places: list[slice | Tensor] = [slice(None)] * self.axis
        places.append(self.indices)
        return x[tuple(places)]


class LocalResponseNorm(nn.Module):
    """`LRN` of ONNX: each value over a power of the mean square of its neighboring channels.

    As `torch.nn.LocalResponseNorm`, with the sum of squares as a 1x1 convolution, which compiles.

    Args:
        channels: C of the maps (N, C, H, W).
        size: Channels of the window, odd.
        alpha: Factor of the mean square.
        beta: The power.
        bias: Added before the power.
    """

    def __init__(self, channels: int, size: int, alpha: float, beta: float, bias: float) -> None:
        super().__init__()
        self.beta, self.bias = beta, bias
        places = torch.arange(channels)
        near = (places - places[:, None]).abs() <= size // 2
        self.register_buffer("window", alpha / size * near[..., None, None].float())
        self.window: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Maps of the same shape."""
        return x * (self.bias + nn.functional.conv2d(x * x, self.window)).pow(-self.beta)


class Reshape(nn.Module):
    """A change of shape in which some sides count the images of a batch.

    Args:
        shape: Of the result; where a side counts images, any number. Without `counts`, of the
            result for each image.
        given: How often each side of the input counts the images.
        counts: The same for the result.
        expands: Whether sides of 1 are repeated, and nothing else changes.
    """

    def __init__(
        self,
        shape: Sequence[int],
        *,
        given: Sequence[int] = (1,),
        counts: Sequence[int] = (),
        expands: bool = False,
    ) -> None:
        super().__init__()
        self.shape = tuple(map(int, shape)) if counts else (-1, *map(int, shape))
        self.counts = tuple(counts) or (1, *(0 for _ in shape))
        self.axis = next(place for place, count in enumerate(given) if count)
        self.each = given[self.axis]
        self.expands = expands

    def forward(self, x: Tensor) -> Tensor:
        """The same elements in another shape."""
        images = x.shape[self.axis] // self.each
        sides = [
            count * images if count else side
            for side, count in zip(self.shape, self.counts, strict=True)
        ]
        return x.expand(sides) if self.expands else x.reshape(sides)


class Chain(nn.Module):
    """Modules in a row that are a block; `nn.Sequential` is a container of blocks.

    Attributes:
        use_res_connect: False, for anatomy: nothing is added to the output.
    """

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        super().__init__()
        self.main = nn.Sequential(*modules)
        self.use_res_connect = False

    def forward(self, x: Tensor) -> Tensor:
        """The output of the last module."""
        y: Tensor = self.main(x)
        return y


class Residual(nn.Module):
    """`main(x) + x`, or `main(x) + downsample(x)`, and an activation after the sum if there is one.

    Attributes:
        use_res_connect: True, for anatomy.
    """

    def __init__(
        self,
        main: Sequence[nn.Module],
        downsample: Sequence[nn.Module],
        activation: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.main = nn.Sequential(*main)
        self.activation: nn.Module | None = activation  # follows the last layer of `main`
        self.downsample = nn.Sequential(*downsample) if downsample else None
        self.use_res_connect = True

    def forward(self, x: Tensor) -> Tensor:
        """The sum."""
        y: Tensor = self.main(x) + (x if self.downsample is None else self.downsample(x))
        return y if self.activation is None else self.activation(y)


class Transformer(nn.Module):
    """Attention and the MLP behind it, which are a block together.

    Args:
        attention: Of the first residual.
        norm: Between the two, and `last` behind them, if norms follow the sums.
        mlp: Of the second residual.
        last: See `norm`.
    """

    def __init__(
        self,
        attention: Residual,
        norm: nn.Module | None,
        mlp: Residual,
        last: nn.Module | None,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.norm = norm
        self.mlp = mlp
        self.last = last

    def forward(self, x: Tensor) -> Tensor:
        """Tokens -> tokens."""
        for module in (self.attention, self.norm, self.mlp, self.last):
            x = x if module is None else module(x)
        return x


class Gate(nn.Module):
    """`x * gate(x)`: squeeze-and-excitation."""

    def __init__(self, gate: Sequence[nn.Module]) -> None:
        super().__init__()
        self.gate = nn.Sequential(*gate)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> the same shape."""
        y: Tensor = x * self.gate(x)
        return y


class Meeting(nn.Module):
    """Several branches of one tensor, whose outputs meet in one operator."""

    def __init__(self, branches: Sequence[Sequence[nn.Module]], meet: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(nn.Sequential(*branch) for branch in branches)
        self.meet = meet

    def forward(self, x: Tensor) -> Tensor:
        """The operator of the branches' outputs."""
        y: Tensor = self.meet(*(branch(x) for branch in self.branches))
        return y


class Steps(nn.Module):
    """Operators that share intermediate results in any order.

    Args:
        given: Name of the input.
        steps: For each module, the names of the tensors that it reads and of its result.
    """

    def __init__(self, given: str, steps: Sequence[tuple[nn.Module, tuple[str, ...], str]]) -> None:
        super().__init__()
        self.steps = nn.ModuleList(module for module, _, _ in steps)
        self.given = given
        self.names = [(reads, output) for _, reads, output in steps]

    def forward(self, x: Tensor) -> Tensor:
        """The result of the last module."""
        values = {self.given: x}
        for module, (reads, output) in zip(self.steps, self.names, strict=True):
            values[output] = module(*(values[name] for name in reads))
        return values[self.names[-1][1]]


class OnnxNetwork(nn.Module):
    """A network from an ONNX file: `layers` in a row, of which some are blocks.

    Args:
        layers: From images (N, 3, H, W), or (N, H, W, 3) if `channels_last`, to class scores.
        channels_last: Whether the first layer takes the channels last.
    """

    def __init__(self, layers: Sequence[nn.Module], *, channels_last: bool) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.channels_last = channels_last

    def forward(self, x: Tensor) -> Tensor:
        """Normalized images (N, 3, H, W) -> class scores (N, classes)."""
        scores: Tensor = self.layers(x.permute(0, 2, 3, 1) if self.channels_last else x)
        return scores


def tensor_of(values: object) -> Tensor:
    """A copy of an array as a tensor, which can be saved: its elements are in order."""
    return torch.tensor(values).contiguous()
