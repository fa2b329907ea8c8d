"""Frozen modules run once for each input, and others every time."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from pocketune.compiler.capture.supplied_dropout import SuppliedDropout
from pocketune.compiler.memoized import KEPT, Memoized

X = torch.randn(2, 4)


class Counted(nn.Linear):
    """Counts how often it runs."""

    def __init__(self, *, trained: bool = False) -> None:
        super().__init__(4, 4)
        self.requires_grad_(trained)
        self.runs = 0

    def forward(self, x: Tensor) -> Tensor:
        """(N, 4) -> (N, 4)."""
        self.runs += 1
        return super().forward(x)


@pytest.fixture
def layer() -> Counted:
    return Counted()


def runs(network: nn.Module, inputs: Iterator[Tensor] | list[Tensor], layer: Counted) -> int:
    frozen = Memoized(network)
    for x in inputs:
        expected = nn.functional.linear(x, layer.weight, layer.bias)
        with frozen.remembering():
            assert torch.equal(network(x), expected)
    return layer.runs


def test_a_frozen_module_runs_once_for_each_input(layer: Counted) -> None:
    assert runs(nn.Sequential(layer), [X, X + 1, X, X.clone(), X + 1], layer) == 2


def test_only_the_latest_inputs_are_kept(layer: Counted) -> None:
    inputs = [X + i for i in range(KEPT + 1)]
    assert runs(nn.Sequential(layer), [*inputs, X], layer) == KEPT + 2


def test_an_input_of_another_type_is_another_one(layer: Counted) -> None:
    layer.double()
    with Memoized(layer).remembering():
        layer(X.double())
        with pytest.raises(RuntimeError):
            layer(X)


def test_what_is_trained_runs_every_time() -> None:
    layer = Counted(trained=True)
    assert runs(nn.Sequential(layer), [X, X], layer) == 2


def test_what_autograd_records_runs_every_time(layer: Counted) -> None:
    x = X.clone().requires_grad_()
    assert runs(nn.Sequential(layer), [x, x], layer) == 2


@pytest.mark.parametrize("varying", [nn.BatchNorm1d(4), SuppliedDropout(0.5, (2, 4))])
def test_a_module_beside_one_that_varies_is_remembered_alone(
    layer: Counted, varying: nn.Module
) -> None:
    network = nn.Sequential(layer, varying.requires_grad_(False))
    with Memoized(network).remembering():
        first, second = network(X), network(X)
        if isinstance(varying, SuppliedDropout):
            varying.mask.zero_()
            assert not network(X).any()
    assert torch.equal(first, second)
    assert layer.runs == 1
    if isinstance(varying, nn.BatchNorm1d):
        assert varying.num_batches_tracked == 2


class Writes(nn.Module):
    """Writes into a tensor while it runs."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        """(...) -> the same shape."""
        if self.where == "buffer":
            self.seen += 1
        if self.where == "input":
            x += 1
        return x + self.seen


@pytest.mark.parametrize("where", ["buffer", "input"])
def test_what_writes_while_it_runs_runs_every_time(where: str) -> None:
    network = Writes(where)
    with Memoized(network).remembering():
        first, second = network(torch.zeros(3)), network(torch.zeros(3))
    assert first[0] == 1
    assert second[0] == (2 if where == "buffer" else 1)


def test_an_output_that_was_written_into_is_not_returned(layer: Counted) -> None:
    with Memoized(layer).remembering():
        expected = layer(X).clone()
        layer(X).zero_()
        assert torch.equal(layer(X), expected)


def test_everything_runs_outside_the_context(layer: Counted) -> None:
    with Memoized(layer).remembering():
        layer(X)
    layer(X)
    assert layer.runs == 2
