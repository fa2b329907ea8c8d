"""Networks are watched while they run, and stay as they are."""

from contextlib import suppress

import pytest
import torch
from torch import Tensor, nn

from pocketune.networks.probe import input_shapes, probing, usual_size
from pocketune.weights import create_network


def test_shapes_of_inputs() -> None:
    network = create_network("mobilenet_v2", width=0.35).train()
    names = ["features.0.0", "features.18.0", "classifier.1"]
    shapes = input_shapes(network, names, (2, 3, 64, 96))
    assert shapes == {
        "features.0.0": (2, 3, 64, 96),
        "features.18.0": (2, network.get_submodule("features.18.0").in_channels, 2, 3),
        "classifier.1": (2, 1280),
    }
    assert network.training
    assert next(network.parameters()).device == torch.device("cpu")


class _Reads(nn.Module):
    """Two layers, the second of which is given its input by name."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), _Named()

    def forward(self, x: Tensor) -> Tensor:
        return self.second(x=self.first(x))


class _Named(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.clone()


def test_calls_are_shown_in_their_order_with_what_is_given_and_returned() -> None:
    seen: list[tuple[str, str, list[tuple[int, ...]]]] = []

    def shapes(kind: str):
        return lambda path, _, given: seen.append((kind, path, [tuple(t.shape) for t in given]))

    network = _Reads()
    with probing(network, enter=shapes("in"), leave=shapes("out")):
        network(torch.zeros(2, 3))
    assert seen == [
        ("in", "", [(2, 3)]),
        ("in", "first", [(2, 3)]),
        ("out", "first", [(2, 4)]),
        ("in", "second", [(2, 4)]),
        ("out", "second", [(2, 4)]),
        ("out", "", [(2, 4)]),
    ]


def test_hooks_and_modes_are_restored_also_after_an_error() -> None:
    network = nn.Sequential(nn.BatchNorm1d(3).eval(), nn.Dropout(), nn.Linear(3, 1).eval())
    own = network[2].register_forward_hook(lambda *_: None)
    modes = [module.training for module in network.modules()]
    calls: list[str] = []
    with suppress(RuntimeError), probing(network, enter=lambda path, *_: calls.append(path)):
        assert not any(module.training for module in network.modules())
        network(torch.zeros(2, 7))
    assert [module.training for module in network.modules()] == modes
    assert [*network[2]._forward_hooks] == [own.id]
    calls.clear()
    network(torch.zeros(2, 3))
    assert not calls


@pytest.mark.parametrize(("gradients", "expected"), [(True, True), (False, False), (None, True)])
def test_autograd_records_as_asked(gradients: bool | None, expected: bool) -> None:
    network = nn.Linear(3, 1)
    with probing(network, gradients=gradients):
        assert network(torch.zeros(2, 3)).requires_grad is expected


def test_the_modes_are_left_alone_where_that_is_asked() -> None:
    network = nn.Sequential(nn.Dropout())
    with probing(network, evaluate=False):
        assert network[0].training


def test_only_the_modules_asked_for_are_shown() -> None:
    network, seen = _Reads(), []
    with probing(network, paths=["second"], enter=lambda path, *_: seen.append(path)):
        network(torch.zeros(2, 3))
    assert seen == ["second"]


@pytest.mark.parametrize(
    ("side", "before", "found"), [(32, (), 32), (48, (48,), 48), (50, (), 224)]
)
def test_a_network_of_one_size_is_given_that(
    side: int, before: tuple[int, ...], found: int
) -> None:
    network = nn.Sequential(nn.Conv2d(3, 2, 1), nn.Flatten(), nn.Linear(2 * side**2, 2)).train()
    assert usual_size(network, *before) == found
    assert network.training
    network[0].image_size = side
    assert usual_size(network) == side
