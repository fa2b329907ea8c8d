"""What a report says, and what `account` refuses."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest
import torch
from torch import Tensor, nn

from pocketune.accounting import Memory, Report, account, render
from pocketune.accounting.costs import block_of, block_paths
from pocketune.accounting.step import record_step
from pocketune.errors import PocketuneError
from pocketune.methods import adapt, create_method
from pocketune.tasks import Attributes, Classification
from pocketune.weights import create_network


def small(method: str = "last") -> nn.Module:
    network = create_network("mobilenet_v2", width=0.1, classes=4)
    return adapt(network, create_method(method))


@pytest.fixture(scope="module")
def full() -> Report:
    return account(small("full"), batch=4, size=32)


def test_the_total_is_the_sum_of_the_categories_at_the_peak(full: Report) -> None:
    categories = full.peak.memory.by_category()
    assert full.total_bytes == sum(categories.values()) == full.to_dict()["total_bytes"]
    assert full.total_bytes == max(snapshot.memory.total for snapshot in full.timeline)
    assert list(categories) == [field.name for field in fields(Memory)]
    assert all(full.largest()[name] >= size for name, size in categories.items())


def test_what_is_there_all_the_time(full: Report) -> None:
    network = small("full")
    parameters = sum(p.nbytes for p in network.parameters())
    memory = full.timeline[-1].memory
    assert memory.trained_parameters == memory.gradients == parameters
    assert memory.optimizer == 2 * parameters
    assert memory.statistics == sum(b.nbytes for b in network.buffers())
    assert memory.temporaries == memory.workspace == memory.residual == 0
    # The stem has kept the images and the loss the labels, and the caller still holds both.
    assert memory.kept == full.batch * (3 * full.size**2 * 4 + 8)


def test_gradients_are_recorded_whatever_the_context(full: Report) -> None:
    with torch.no_grad():
        assert account(small("full"), batch=4, size=32).to_dict() == full.to_dict()


def test_layers_and_blocks_add_up(full: Report) -> None:
    for costs in (full.layers, full.blocks):
        assert costs[-1].cumulative_kept_bytes == full.kept_bytes
        assert sum(cost.kept_bytes for cost in costs) == full.kept_bytes
        assert sum(cost.flops.total for cost in costs) == full.flops.total
        assert max(cost.peak_bytes for cost in costs) == full.total_bytes
        assert sum(cost.trained_bytes for cost in costs) == full.peak.memory.trained_parameters
    inside = block_of(full.peak.layer, block_paths(small()))
    assert full.worst_block.name == inside


def test_it_is_json(full: Report) -> None:
    assert json.loads(json.dumps(full.to_dict()))["worst_block"] == full.worst_block.name


@pytest.mark.parametrize("by", ["block", "layer"])
def test_the_table_shows_the_total_and_names_the_worst_block(full: Report, by: str) -> None:
    text = render.as_text(full.draw(by=by))
    assert render.megabytes(full.total_bytes) in text
    assert f"the worst block is {full.worst_block.name}." in text


def test_images_of_one_channel() -> None:
    kept = []
    for channels in (1, 3):
        network = nn.Sequential(nn.Conv2d(channels, 4, 3), nn.Flatten(), nn.Linear(144, 2))
        kept.append(account(network, batch=2, size=8, channels=channels).kept_bytes)
    assert kept[1] - kept[0] == 4 * 2 * (3 - 1) * 8 * 8  # the images


@pytest.mark.parametrize(("optimizer", "slots"), [("adam", 2), ("adamw", 2), ("sgd", 1)])
def test_optimizers(optimizer: str, slots: int) -> None:
    memory = account(tiny(), batch=2, size=8, optimizer=optimizer).peak.memory
    assert memory.optimizer == slots * memory.trained_parameters


def tiny() -> nn.Module:
    """A convolution, a norm and a classifier of four classes."""
    layers = [nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 9, 4)]
    return nn.Sequential(*layers)


def test_the_loss_is_that_of_the_task() -> None:
    names = ("a", "b", "c", "d")
    plain, classes, attributes = (
        account(tiny(), batch=2, size=8, task=task)
        for task in (None, Classification(names), Attributes(names))
    )
    assert classes.to_dict() == plain.to_dict()
    losses = {next(c for c in r.layers if c.name == "loss").flops for r in (classes, attributes)}
    assert len(losses) == 2
    step = record_step(tiny(), batch=2, size=8, channels=3, task=Attributes(names))
    assert list(step.given.values()) == [2 * 3 * 8 * 8 * 4, 2 * 4]  # a byte for each attribute


def test_true_types_are_counted() -> None:
    network = tiny().bfloat16()
    parameters = sum(p.numel() for p in network.parameters())
    assert account(network, batch=2, size=8).peak.memory.trained_parameters == 2 * parameters


def test_int8_buffers_are_frozen_parameters() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    network.register_buffer("packed", torch.zeros(100, dtype=torch.int8))
    memory = account(network, batch=1, size=2).peak.memory
    assert memory.frozen_parameters == 100
    assert memory.statistics == 0


def test_a_module_on_the_meta_device(full: Report) -> None:
    with torch.device("meta"):
        network = small("full")
    assert account(network, batch=4, size=32).to_dict() == full.to_dict()


def test_tied_parameters_count_once() -> None:
    first, second = nn.Conv2d(3, 3, 1, bias=False), nn.Conv2d(3, 3, 1, bias=False)
    second.weight = first.weight
    network = nn.Sequential(first, second, nn.Flatten(), nn.Linear(12, 2))
    result = account(network, batch=1, size=2)
    expected = sum(p.nbytes for p in network.parameters())
    assert result.peak.memory.trained_parameters == expected
    assert sum(layer.trained_bytes for layer in result.layers) == expected


def test_a_loss_of_the_callers() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU())
    result = account(network, batch=2, size=8, loss=lambda maps: maps.square().mean())
    assert result.kept_bytes >= 2 * 3 * 8 * 8 * 4  # what the convolution reads
    first = account(Pair(), batch=2, size=2, loss=lambda pair: pair[0].mean())
    assert {layer.name for layer in first.layers} >= {"linear"}


class Deciding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(12, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.flatten(1)) if x.sum() > 0 else self.linear(x.flatten(1) + 1)


class Raising(nn.Module):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.linear, self.error = nn.Linear(12, 2), error

    def forward(self, x: Tensor) -> Tensor:
        raise self.error


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(12, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.linear(x.flatten(1)), x


def counting_norm() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4, momentum=None))


class Fourier(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.rfft2(x).abs()


@pytest.mark.parametrize(
    ("network", "options", "said"),
    [
        (lambda: "mobilenet_v2", {}, "network='mobilenet_v2' must be a PyTorch module"),
        (small, {"batch": 0}, "batch=0 must be a whole number of at least 1"),
        (small, {"channels": 0}, "channels=0 must be a whole number of at least 1"),
        (small, {"size": 1.5}, "size=1.5 must be a whole number"),
        (small, {"optimizer": "lion"}, "unknown optimizer 'lion': choose one of adam, adam8"),
        (lambda: small().requires_grad_(False), {}, "nothing in this network is trained"),
        (lambda: nn.Sequential(nn.Conv2d(3, 4, 5), nn.Flatten(), nn.LazyLinear(2)), {}, "is lazy"),
        (lambda: nn.Sequential(nn.Conv2d(3, 4, 5)), {"size": 4}, "cannot take images of shape"),
        (lambda: small("full"), {"batch": 1}, "cannot take images of shape (1, 3, 32, 32)"),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(13, 2)), {"size": 2}, "cannot take images"),
        (lambda: Raising(ValueError()), {}, "images of shape (2, 3, 32, 32): ValueError"),
        (lambda: Raising(AssertionError("small")), {}, "images of shape (2, 3, 32, 32): small"),
        (Deciding, {"size": 2}, "depends on the values of a tensor"),
        (counting_norm, {}, "batch norm 1 has momentum=None, which weighs each batch"),
        (Pair, {"size": 2}, "returns a tuple, not one tensor of class scores"),
        (
            lambda: nn.Conv2d(3, 4, 1),
            {"size": 2},
            "returns (2, 4, 2, 2), not one tensor",
        ),
        (
            lambda: nn.Sequential(nn.Conv2d(3, 4, 1), Fourier()),
            {},
            "1 (Fourier): the operator aten._fft_r2c has no rule for its FLOPs",
        ),
    ],
)
def test_refusals(network, options, said) -> None:
    with pytest.raises(PocketuneError) as error:
        account(network(), **{"batch": 2, "size": 32, **options})
    assert said in str(error.value)
