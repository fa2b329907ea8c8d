"""Budgets that only some drafts of a network fit, and what is looked at where none does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pocketune.data import load_splits
from pocketune.device.train import TrainSettings
from pocketune.errors import PocketuneError
from pocketune.kit import Kit
from pocketune.planner.context import PlanContext
from pocketune.planner.evidence import Evidence
from pocketune.planner.journal import Journal
from pocketune.planner.limits import Limits
from pocketune.planner.screening import Screening
from pocketune.planner.trial import Trial
from pocketune.proposals.choice import drafts_in
from pocketune.proposals.source import DraftSource
from pocketune.weights import create_network, save_network

from ..device.softmax_engine import write_photos
from ..planner.fakes import MB, asked

PROCESS = 40_000_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of one network, and photos."""
    folder = tmp_path_factory.mktemp("fallbacks")
    (folder / "weights").mkdir()
    torch.manual_seed(0)
    saved = folder / "weights" / "mine.safetensors"
    save_network(create_network("mobilenet_v2", width=0.2), saved)
    write_photos(folder / "photos")
    return folder


def context_of(folder: Path, budget: int | None = None) -> PlanContext:
    train = load_splits(folder / "photos").train
    settings = TrainSettings(budget=budget)
    return PlanContext(folder / "photos", train, settings, PROCESS, folder, lambda _: None)


def source_of(context: PlanContext, *methods: str) -> DraftSource:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pocketune.proposals.source.SIZES", (96,))
        patch.setattr("pocketune.proposals.source.METHODS", ("last", "mobiletl", "blocks"))
        return drafts_in(context.folder / "weights", None, methods or None)(context)


def left(folder: Path, plan: Path, budget: int, *methods: str) -> list[Trial]:
    """The trials that real drafts leave for short runs."""
    context = context_of(folder, budget)
    source = source_of(context, *methods)
    journal = Journal(plan, asked(limits=Limits(budget=budget)), say=lambda _: None)
    journal.open(*source.find())
    Screening(Evidence(source, context.probe, journal, 100, context.decoding)).run()
    return journal.left


@pytest.fixture(scope="module")
def memory(folder: Path) -> dict[str, int]:
    """The least memory of every candidate and fallback, by what differs."""
    source = source_of(context_of(folder))
    found = [*source.find()[0], *(each for some in source.fallbacks() for each in some)]
    return {short(each.name): source.cost(each).least_memory for each in found}


def short(name: str) -> str:
    return name.removeprefix("mobilenet_v2 0.2, 96 px, ")


def test_a_method_with_an_8_bit_frozen_part_fits_where_the_last_layer_does_not(
    folder: Path, memory: dict[str, int], tmp_path: Path
) -> None:
    assert memory["mobiletl"] < memory["last"]
    (trial,) = left(folder, tmp_path, memory["mobiletl"])
    assert short(trial.name) == "mobiletl"
    assert trial.optimizer == "adam8"


@pytest.mark.parametrize("methods", [("blocks", "last"), ("last", "blocks")])
def test_methods_fit_in_any_order(
    folder: Path, memory: dict[str, int], tmp_path: Path, methods: tuple[str, ...]
) -> None:
    (trial,) = left(folder, tmp_path, memory["last"], *methods)
    assert short(trial.name) == "last"


def test_the_last_layer_in_8_bits_where_nothing_else_fits(
    folder: Path, memory: dict[str, int], tmp_path: Path
) -> None:
    (trial,) = left(folder, tmp_path, memory["mobiletl"] - 1)
    assert short(trial.name) == "last, 8 bits"
    candidate = trial.candidate
    assert (candidate.batch, candidate.accumulate, candidate.frozen_bits) == (8, 1, 8)


def test_then_a_smaller_batch_with_as_many_images_in_a_step(
    folder: Path, memory: dict[str, int], tmp_path: Path
) -> None:
    (trial,) = left(folder, tmp_path, memory["last, 8 bits"] - 1)
    assert short(trial.name) == "last, 8 bits, batch 4"
    assert (trial.candidate.batch, trial.candidate.accumulate) == (4, 2)


def test_the_budget_that_a_refusal_names_is_the_smallest(
    folder: Path, memory: dict[str, int], tmp_path: Path
) -> None:
    smallest = -(-min(memory.values()) // MB)
    with pytest.raises(PocketuneError, match=f"something fits is {smallest} MB, for mobilenet"):
        left(folder, tmp_path, (smallest - 1) * MB)
    assert left(folder, tmp_path / "more", smallest * MB)


def test_batches_whose_norms_need_them_are_not_accumulated(folder: Path) -> None:
    """Each named method has fallbacks; the norms of `blocks` use the statistics of a batch."""
    rounds = source_of(context_of(folder), "blocks", "last").fallbacks()
    steps = [(short(each.name), each.batch, each.accumulate) for some in rounds for each in some]
    assert steps == [
        ("blocks, 8 bits", 8, 1),
        ("last, 8 bits", 8, 1),
        ("blocks, 8 bits, batch 4", 4, 1),
        ("last, 8 bits, batch 4", 4, 2),
        ("blocks, 8 bits, batch 2", 2, 1),
        ("last, 8 bits, batch 2", 2, 4),
        ("last, 8 bits, batch 1", 1, 8),
    ]


def test_fallbacks_can_be_built(folder: Path) -> None:
    context = context_of(folder)
    source = source_of(context)
    *_, (smallest,) = source.fallbacks()
    manifest = Kit.open(source.kit(smallest, "adam")).manifest
    assert (manifest.batch, manifest.frozen_bits) == (1, 8)
