"""Costs of layers and of blocks, of a network small enough to count by hand."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from pocketune.accounting import Flops, LayerCost, Report, account
from pocketune.accounting.costs import block_of, block_paths, combine

BATCH, SIZE, FLOAT = 2, 4, 4
MAP = BATCH * SIZE * SIZE


def network() -> nn.Module:
    """A frozen 1x1 convolution, an activation and a trained classifier."""
    first = nn.Conv2d(3, 5, 1, bias=False).requires_grad_(False)
    body = nn.Sequential(first, nn.ReLU())
    return nn.Sequential(body, nn.Flatten(), nn.Linear(5 * SIZE * SIZE, 2))


@pytest.fixture(scope="module")
def report() -> Report:
    return account(network(), batch=BATCH, size=SIZE, optimizer="sgd")


@pytest.fixture(scope="module")
def layers(report: Report) -> dict[str, LayerCost]:
    return {layer.name: layer for layer in report.layers}


class TestByHand:
    def test_layers_come_in_the_order_in_which_they_run(self, layers) -> None:
        assert [(name, layer.kind) for name, layer in layers.items()] == [
            ("0.0", "Conv2d"),
            ("0.1", "ReLU"),
            ("1", "Flatten"),
            ("2", "Linear"),
            ("loss", "loss"),
            ("", "Sequential"),  # the gradient that the backward pass starts from
        ]

    def test_parameters(self, layers) -> None:
        assert (layers["0.0"].parameter_bytes, layers["0.0"].trained_bytes) == (15 * FLOAT, 0)
        classifier = (80 * 2 + 2) * FLOAT
        assert layers["2"].parameter_bytes == layers["2"].trained_bytes == classifier

    def test_only_what_a_gradient_needs_is_kept(self, layers) -> None:
        assert layers["0.0"].kept_bytes == layers["0.1"].kept_bytes == 0
        assert layers["2"].kept_bytes == 5 * MAP * FLOAT  # its input
        assert layers["2"].cumulative_kept_bytes == 5 * MAP * FLOAT

    def test_flops(self, layers) -> None:
        macs = MAP * 15
        assert layers["0.0"].flops == Flops(forward=2 * macs, forward_macs=macs)
        assert layers["0.1"].flops == Flops(forward=5 * MAP)
        macs = BATCH * 80 * 2
        assert layers["2"].flops == Flops(
            forward=2 * macs + BATCH * 2,
            forward_macs=macs,
            backward=2 * macs + BATCH * 2,  # of the weight; the bias is a sum
            backward_macs=macs,
            optimizer=4 * (80 * 2 + 2),
        )

    def test_memory_of_the_step(self, report) -> None:
        first, last = report.timeline[0].memory, report.timeline[-1].memory
        assert first.images == 3 * MAP * FLOAT
        assert first.kept == BATCH * 8  # the labels
        assert first.temporaries == 5 * MAP * FLOAT  # the convolution's output
        trained = (80 * 2 + 2) * FLOAT
        assert last.trained_parameters == last.gradients == last.optimizer == trained
        assert last.frozen_parameters == 15 * FLOAT

    def test_phases_follow_each_other(self, report) -> None:
        phases = [snapshot.phase for snapshot in report.timeline]
        assert phases == sorted(phases, key=["forward", "backward", "optimizer"].index)
        assert phases.count("optimizer") == 1

    def test_json_has_every_layer_and_block(self, report) -> None:
        values = json.loads(json.dumps(report.to_dict()))
        assert values["layers"] == [asdict(layer) for layer in report.layers]
        assert [LayerCost(**{**b, "flops": Flops(**b["flops"])}) for b in values["blocks"]] == list(
            report.blocks
        )
        assert values["flops"]["total"] == report.flops.total
        assert (values["batch"], values["size"], values["optimizer"]) == (BATCH, SIZE, "sgd")
        assert sum(values["peak"]["bytes"].values()) == values["total_bytes"]

    def test_the_batch_scales_what_is_kept_and_computed_and_nothing_else(self, report) -> None:
        twice = account(network(), batch=2 * BATCH, size=SIZE, optimizer="sgd")
        kept = [
            [layer.kept_bytes for layer in r.layers if layer.name != "loss"]
            for r in (report, twice)
        ]
        assert kept[1] == [2 * size for size in kept[0]]
        assert twice.flops.forward_macs == 2 * report.flops.forward_macs
        assert twice.flops.optimizer == report.flops.optimizer
        assert twice.total_bytes > report.total_bytes
        before, after = report.timeline[-1].memory, twice.timeline[-1].memory
        assert (after.images, after.kept) == (2 * before.images, 2 * before.kept)
        assert after.total - before.total == before.images + before.kept


def test_a_module_that_only_holds_parameters_comes_last() -> None:
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.ParameterDict({"a": nn.Parameter(torch.ones(3))})
            self.linear = nn.Linear(12, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x.flatten(1)) * self.scale["a"].sum()

    layers = account(Holder(), batch=1, size=2, optimizer="sgd").layers
    assert layers[-1].name == "scale"
    assert layers[-1].trained_bytes == 12
    assert layers[-1].flops == Flops(optimizer=12)
    assert layers[-1].peak_bytes == 0


class TestFlops:
    numbers = st.integers(0, 10**12)
    flops = st.builds(
        Flops,
        forward=numbers,
        backward=numbers,
        optimizer=numbers,
        forward_macs=numbers,
        backward_macs=numbers,
    )

    @given(flops, flops)
    def test_they_add_up_field_by_field(self, first: Flops, second: Flops) -> None:
        both = first + second
        assert both == second + first
        assert both.total == first.total + second.total
        assert both.backward_macs == first.backward_macs + second.backward_macs
        assert first + Flops() == first

    def test_multiply_accumulates_are_in_the_flops_already(self) -> None:
        assert (
            Flops(forward=5, backward=7, optimizer=1, forward_macs=2, backward_macs=3).total == 13
        )


def test_together_sums_add_up_and_peaks_do_not() -> None:
    first = LayerCost(
        name="a.0",
        kind="Conv2d",
        block="a",
        parameter_bytes=1,
        trained_bytes=2,
        kept_bytes=4,
        temporary_bytes=8,
        peak_bytes=16,
        flops=Flops(forward=3),
    )
    second = LayerCost(
        name="a.1", kind="ReLU", block="a", kept_bytes=5, temporary_bytes=6, peak_bytes=99,
        flops=Flops(forward=4),
    )  # fmt: skip
    assert combine([first, second], name="a", kind="Block", cumulative_kept_bytes=50) == LayerCost(
        name="a",
        kind="Block",
        block="a",
        parameter_bytes=1,
        trained_bytes=2,
        kept_bytes=9,
        cumulative_kept_bytes=50,
        temporary_bytes=8,
        peak_bytes=99,
        flops=Flops(forward=7),
    )


class Unit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)


class TestBlocks:
    def test_containers_are_opened_and_other_modules_are_not(self) -> None:
        network = nn.Sequential(nn.Conv2d(3, 3, 1), nn.Sequential(Unit(), nn.ModuleList([Unit()])))
        assert block_paths(network) == ["0", "1.0", "1.1.0"]

    def test_a_network_of_one_layer_has_no_blocks(self) -> None:
        assert block_paths(nn.Conv2d(3, 3, 1)) == []

    @pytest.mark.parametrize(
        ("layer", "block"),
        [
            ("features.1", "features.1"),
            ("features.1.conv.0", "features.1"),
            ("features.10.conv", "features.10"),
            ("features.11", "features.11"),  # in no block
            ("loss", "loss"),
            ("", ""),
        ],
    )
    def test_a_layer_belongs_to_the_block_of_its_whole_name(self, layer: str, block: str) -> None:
        assert block_of(layer, ["features.1", "features.10"]) == block
