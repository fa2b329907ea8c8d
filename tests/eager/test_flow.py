"""Layers that read exactly what another one returns."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from pocketune.eager import calibrate
from pocketune.eager.flow import Flow, follow
from pocketune.layers import IntegerConv2d
from pocketune.methods import LastLayer, adapt

Operator = Callable[[Tensor], Tensor]


class Block(nn.Module):
    """Two convolutions with a shortcut; operators behind the first norm and the activation."""

    def __init__(self, behind_norm: Operator, behind_activation: Operator) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.act = nn.ReLU()
        self.conv2, self.bn2 = nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.behind_norm, self.behind_activation = behind_norm, behind_activation

    def forward(self, x: Tensor) -> Tensor:
        y = self.behind_norm(self.bn1(self.conv1(x)))
        y = self.behind_activation(self.act(y))
        return x + self.bn2(self.conv2(y))


def same(x: Tensor) -> Tensor:
    return x


def network(behind_norm: Operator = same, behind_activation: Operator = same) -> nn.Module:
    torch.manual_seed(0)
    stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
    blocks = [Block(behind_norm, behind_activation) for _ in range(2)]
    end = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5))
    made = nn.Sequential(stem, nn.Sequential(*blocks), *end)
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 1, 3)
            nn.init.normal_(module.bias)
            nn.init.uniform_(module.running_var, 0.05, 0.3)
    return made.eval()


def scale_part(x: Tensor) -> Tensor:
    x[:, :8].mul_(-3.0)
    return x


def assign_part(x: Tensor) -> Tensor:
    x[:, :8] = -3.0 * x[:, :8]
    return x


OPERATORS: dict[str, Operator] = {
    "none": same,
    "relu_": lambda x: functional.relu(x, inplace=True),
    "mul_": lambda x: x.mul_(-0.5),
    "add_": lambda x: x.add_(1.0),
    "abs_": lambda x: x.abs_(),
    "neg_": lambda x: x.neg_(),
    "silu_": lambda x: functional.silu(x, inplace=True),
    "hardswish_": lambda x: functional.hardswish(x, inplace=True),
    "part": scale_part,
    "assigned part": assign_part,
    "neg": torch.neg,
}


@pytest.mark.parametrize("place", ["behind_norm", "behind_activation"])
@pytest.mark.parametrize("operator", OPERATORS)
@torch.no_grad()
def test_integers_are_right_whatever_stands_between_layers(operator: str, place: str) -> None:
    plain, x = network(**{place: OPERATORS[operator]}), torch.randn(4, 3, 32, 32)
    calibrated = calibrate(adapt(plain, LastLayer()), [x]).eval()
    expected = plain[:2](x)
    error = (calibrated[:2](x) - expected).norm() / expected.norm()
    assert error < 0.1
    first = calibrated.get_submodule("1.0.conv1")
    assert isinstance(first, IntegerConv2d)
    assert (first.output_format is not None) == (operator == "none")


class TwoReaders(Block):
    """The second convolution's input is also added to its output."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self.bn1(self.conv1(x)))
        return x + self.bn2(self.conv2(y)) + y


@torch.no_grad()
def test_a_map_with_two_readers_stays_in_floats() -> None:
    plain, x = network(), torch.randn(4, 3, 32, 32)
    plain[1][0].__class__ = TwoReaders
    calibrated = calibrate(adapt(plain, LastLayer()), [x]).eval()
    expected = plain[:2](x)
    assert (calibrated[:2](x) - expected).norm() / expected.norm() < 0.1


class SharedConvolution(Block):
    """A second call of the first convolution has nothing behind it."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.conv1(x)


class SharedNorm(Block):
    """A second call of the first norm has no convolution before it."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.bn1(x)


class SharedActivation(Block):
    """A second call of the activation is behind no norm."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.act(-x)


@pytest.mark.parametrize("shared", [SharedConvolution, SharedNorm, SharedActivation])
@torch.no_grad()
def test_layers_that_are_called_elsewhere_too_keep_what_they_compute(shared: type[Block]) -> None:
    plain, x = network(), torch.randn(4, 3, 32, 32)
    plain[1][0].__class__ = shared
    plain[1][0].act = nn.ReLU6()
    calibrated = calibrate(adapt(plain, LastLayer()), [x]).eval()
    expected = plain[:2](x)
    assert (calibrated[:2](x) - expected).norm() / expected.norm() < 0.1


ROW = ("conv1", "bn1", "act", "conv2")


def flow(block: nn.Module) -> Flow:
    for parameter in block.parameters():
        parameter.requires_grad_(False)
    return follow(block, ROW, torch.randn(2, 16, 8, 8))


def test_rows() -> None:
    seen = flow(Block(same, same))
    assert seen.frozen == set(ROW)
    assert seen.has_row(*ROW)
    assert seen.has_row("bn1", "act")
    assert not seen.has_row("conv1", "act")


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.shape[1] == x.size(1),
        lambda x: x.ndim == x.dim() and x.numel() > len(x),
        lambda x: x.device.type == "cpu" and x.dtype.is_floating_point,
        lambda x: x.requires_grad or x.is_floating_point(),
    ],
)
def test_shapes_and_types_may_be_read(read: Callable[[Tensor], bool]) -> None:
    assert flow(Block(lambda x: x if read(x) else -x, same)).has_row(*ROW)


def test_a_row_holds_in_every_call() -> None:
    seen = flow(SharedActivation(same, same))
    assert (seen.calls("conv1"), seen.calls("act")) == (1, 2)
    assert seen.has_row("conv1", "bn1", "act")
    assert not seen.has_row("act", "conv2")
    assert not flow(SharedConvolution(same, same)).has_row("conv1", "bn1")


def test_a_layer_that_reads_something_trained_in_one_call_is_not_frozen() -> None:
    block = SharedActivation(lambda x: x + shift, same)
    shift = torch.zeros((), requires_grad=True)
    assert flow(block).frozen == {"conv1", "bn1"}


def test_operators_end_rows() -> None:
    seen = flow(Block(functional.relu_, same))
    assert seen.has_row("conv1", "bn1")
    assert seen.has_row("act", "conv2")
    assert not seen.has_row("bn1", "act")


def test_layers_behind_trained_ones_are_not_frozen() -> None:
    block = Block(same, same)
    for path in ("conv1", "bn1", "conv2"):
        block.get_submodule(path).requires_grad_(path == "bn1")
    assert follow(block, ROW, torch.randn(2, 16, 8, 8)).frozen == {"conv1", "bn1"}


def test_a_map_that_the_network_returns_is_read() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.act, self.last = nn.Conv2d(3, 3, 1), nn.ReLU(), nn.Conv2d(3, 3, 1)
            self.both = True

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            y = self.conv(x)
            z = self.last(self.act(y))
            return (z, y) if self.both else (z,)

    made = Both()
    assert not follow(made, ["conv", "act", "last"], torch.ones(1, 3, 4, 4)).has_row("conv", "act")
    made.both = False
    assert follow(made, ["conv", "act", "last"], torch.ones(1, 3, 4, 4)).has_row("conv", "act")
