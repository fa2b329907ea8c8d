"""The sub-networks of a once-for-all supernet with MobileNetV2's blocks.

Cai et al., Once for All: Train One Network and Specialize it for Efficient Deployment, ICLR 2020;
Cai et al., TinyTL, NeurIPS 2020, section 3.3. `pocketune.supernet` has the supernet itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from torch import Tensor, nn

from pocketune.errors import PocketuneError, check_choice
from pocketune.networks.architectures.parts import (
    ConvNormActivation,
    InvertedResidual,
    OutputStride,
    PlainNetwork,
    convolution,
    make_divisible,
)
from pocketune.networks.config import NetworkConfig
from pocketune.networks.registry import register_network

NAME = "ofa_mobilenet_v2"
STRIDES = (2, 2, 2, 1, 2)
"""Of the first block of each elastic stage; the last stage, of one block, has stride 1."""
FIRSTS = ("ordinary", "reduced")


@dataclass(frozen=True)
class Channels:
    """The output channels of all parts at width 1, and the eps of the norms."""

    stem: int
    first: int
    stages: tuple[int, ...]
    last: int
    fusion: int
    eps: float


CHANNELS = {
    "ofa": Channels(32, 16, (24, 40, 80, 96, 192), 320, 1280, 1e-3),
    "mobilenet_v2": Channels(32, 16, (24, 32, 64, 96, 160), 320, 1280, 1e-5),
}
"""The published channels: those of ProxylessNAS, as in TinyTL, and those of MobileNetV2."""


@dataclass(frozen=True)
class Subnet:
    """The choices that make a sub-network; `to_dict` is `NetworkConfig.subnet`.

    Attributes:
        depths: Blocks of each of the five stages.
        kernels: Kernel of each block, in order, those of the first block and the stem left out.
        expansions: Hidden channels of each block over its input channels.
        channels: One of `CHANNELS`.
        first: `"reduced"` makes the first block of the first stage a `ReducedBlock`.

    Raises:
        PocketuneError: The choices are not understood, or do not fit together.
    """

    depths: tuple[int, ...] = (2,) * len(STRIDES)
    kernels: tuple[int, ...] = (3,) * (2 * len(STRIDES) + 1)
    expansions: tuple[int, ...] = (3,) * (2 * len(STRIDES) + 1)
    channels: str = "ofa"
    first: str = "ordinary"

    def __post_init__(self) -> None:
        for name in ("depths", "kernels", "expansions"):
            object.__setattr__(self, name, whole_numbers(name, getattr(self, name)))
        check_choice(CHANNELS, channels=self.channels)
        check_choice(FIRSTS, first=self.first)
        if len(self.depths) != len(STRIDES):
            raise PocketuneError(
                f"depths={self.depths} must have a number for each of {len(STRIDES)} stages"
            )
        if any(kernel % 2 == 0 for kernel in self.kernels):
            raise PocketuneError(f"kernels={self.kernels} must be odd")
        blocks = sum(self.depths) + 1
        if not len(self.kernels) == len(self.expansions) == blocks:
            raise PocketuneError(
                f"kernels and expansions must have {blocks} numbers: one for each block of "
                f"depths={self.depths} and one for the last block"
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return plain_values(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Subnet":
        """The inverse of `to_dict`.

        Raises:
            PocketuneError: A key is unknown, or a value is invalid.
        """
        if not isinstance(values, Mapping) or set(values) - set(cls.__dataclass_fields__):
            known = ", ".join(cls.__dataclass_fields__)
            raise PocketuneError(f"subnet={values!r} is not understood: its keys are {known}")
        return cls(**values)

    @property
    def places(self) -> list[tuple[int, int]]:
        """Stage and position in it of each block in order; the last one is a stage of its own."""
        inside = [(stage, place) for stage, n in enumerate(self.depths) for place in range(n)]
        return [*inside, (len(self.depths), 0)]


def whole_numbers(name: str, values: Any) -> tuple[int, ...]:
    """`values` as a tuple of positive integers.

    Raises:
        PocketuneError: They are not.
    """
    given = tuple(values) if isinstance(values, Sequence) and not isinstance(values, str) else ()
    if not given or not all(type(value) is int and value > 0 for value in given):
        raise PocketuneError(f"{name}={values!r} must be whole numbers above 0")
    return given


def plain_values(choices: Any) -> dict[str, Any]:
    """The fields of a dataclass for JSON, tuples as lists."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(choices).items()}


class ReducedBlock(nn.Module):
    """TinyTL's first strided block: a dense 3x3 expansion with the stride, 1x1 projection.

    An ordinary block expands its input before the stride, where the maps are four times larger.
    """

    use_res_connect = False

    def __init__(
        self, inputs: int, middle: int, outputs: int, *, stride: int, padding: str, eps: float
    ) -> None:
        super().__init__()
        norm = partial(nn.BatchNorm2d, eps=eps)
        self.conv = nn.Sequential(
            ConvNormActivation(inputs, middle, 3, stride=stride, padding=padding, norm=norm),
            convolution(middle, outputs),
            norm(outputs),
        )

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) -> (N, outputs, H / stride, W / stride)."""
        y: Tensor = self.conv(x)
        return y


@register_network(NAME, has_subnets=True)
def ofa_mobilenet_v2(config: NetworkConfig) -> nn.Module:
    """A sub-network; by default the smallest one of the published space.

    Beyond the output stride, the first block of a stage is dilated and the others are not.
    """
    subnet = Subnet() if config.subnet is None else Subnet.from_dict(config.subnet)
    base = CHANNELS[subnet.channels]
    norm = partial(nn.BatchNorm2d, eps=base.eps)
    reach = OutputStride(config.output_stride)
    outputs = [make_divisible(n * config.width) for n in (*base.stages, base.last)]
    inputs = make_divisible(base.stem * config.width)
    stem = ConvNormActivation(3, inputs, 3, stride=2, padding=config.padding, norm=norm)
    features: list[nn.Module] = [stem]

    def add(middle: int, outputs: int, kernel: int, full_stride: int, *, reduced: bool) -> int:
        stride, dilation = reach(full_stride)
        options: dict[str, Any] = {"stride": stride, "padding": config.padding, "eps": base.eps}
        if reduced:
            features.append(ReducedBlock(inputs, middle, outputs, **options))
        else:
            options |= {
                "kernel": kernel,
                "dilation": dilation if full_stride > 1 else 1,
                "residual": full_stride == 1,
            }
            features.append(InvertedResidual(inputs, middle, outputs, **options))
        return outputs

    inputs = add(inputs, make_divisible(base.first * config.width), 3, 1, reduced=False)
    for (stage, place), kernel, expansion in zip(
        subnet.places, subnet.kernels, subnet.expansions, strict=True
    ):
        inputs = add(
            make_divisible(inputs * expansion),
            outputs[stage],
            kernel,
            (*STRIDES, 1)[stage] if place == 0 else 1,
            reduced=subnet.first == "reduced" and (stage, place) == (0, 0),
        )
    if config.feature_fusion:
        fused = make_divisible(base.fusion * max(1.0, config.width))
        features.append(ConvNormActivation(inputs, fused, norm=norm))
        inputs = fused
    classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(inputs, config.classes))
    return PlainNetwork(features, classifier, reach.reached)
