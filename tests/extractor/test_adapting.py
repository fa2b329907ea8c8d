"""A whole search: what it writes, and that a kill in any phase changes nothing."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from itertools import count
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from pocketune.device.train import train
from pocketune.device.train.interrupt import Interrupted
from pocketune.device.train.progress import EpochReport, Silent
from pocketune.device.train.record import RunRecord
from pocketune.errors import PocketuneError
from pocketune.extractor import Record, adapting
from pocketune.extractor import clock as clock_module
from pocketune.extractor import search as search_module
from pocketune.extractor.clock import Clock
from pocketune.extractor.record import ADAPTED, CHOSEN, FRONT, RECORD
from pocketune.extractor.search import FEWEST_PAIRS
from pocketune.extractor.settings import ExtractorSettings
from pocketune.kit.kit import Kit
from pocketune.methods import TinyTL
from pocketune.processes.command import run_command
from pocketune.weights import load_network

from ..device.softmax_engine import CLASSES
from .searches import BUDGET, Kill, Search, no_kit, run

pytestmark = pytest.mark.usefixtures("quick")


KILLED = """
import os, signal, sys
from contextlib import contextmanager
from pathlib import Path
from tests.extractor.searches import Kill, no_kit, quickened, run

class Killed(Kill):
    def photos(self, report):
        try:
            super().photos(report)
        except KeyboardInterrupt:
            os.kill(os.getpid(), signal.SIGKILL)

with quickened(), no_kit():
    run(Path(sys.argv[1]), Path(sys.argv[2]), Killed("measuring", 9), budget=int(sys.argv[3]))
"""
"""A search that kills its process."""


class KilledTraining(Silent):
    """Ends the process, in effect, after the first epoch."""

    def epoch(self, report: EpochReport) -> None:
        raise KeyboardInterrupt


@pytest.fixture(scope="module")
def shown() -> Kill:
    """What the whole search has shown."""
    return Kill()


@pytest.fixture(scope="module")
def whole(inputs: Path, shown: Kill) -> Record:
    """A search without a kit; its folder is `whole.search`."""
    with no_kit():
        return run(inputs, inputs / "whole", shown, budget=BUDGET)


def measured(record: Record) -> dict[str, Any]:
    """The record without times, in an order that does not depend on interruptions."""
    found = asdict(record)
    del found["seconds"], found["before"]
    for name in ("pairs", "forecasts"):
        found[name] = sorted(found[name], key=str)
    return found


def test_a_search_that_is_killed_in_each_phase_ends_as_if_it_had_not_been(
    whole: Record, search: Search
) -> None:
    phases = (("adapting", 2), ("measuring", 9), ("forecasting", 7), ("searching", 3))
    for phase, number in phases:
        with pytest.raises(KeyboardInterrupt):
            search("killed", Kill(phase, number), budget=BUDGET)
    assert measured(search("killed", budget=BUDGET)) == measured(whole)


def test_a_search_that_is_killed_in_the_pilot_plans_with_all_of_its_seconds(
    search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(monotonic=count().__next__)  # a second each time that it is read
    for module in (adapting, clock_module, search_module):
        monkeypatch.setattr(module, "time", clock)
    for number in (3, 2):
        with pytest.raises(KeyboardInterrupt):
            search("kit", Kill("measuring", number), pairs=100, time="200s")
    record = Record.read(tmp_path / "kit.search" / RECORD)
    assert FEWEST_PAIRS < (record.planned or 0) < 0.7 * 200


def test_the_record_has_everything_that_was_measured(
    whole: Record, shown: Kill, inputs: Path
) -> None:
    folder = inputs / "whole.search"
    assert Record.read(folder / RECORD) == whole
    assert len(whole.pairs) == whole.planned == len({pair.config for pair in whole.pairs}) == 20
    assert whole.steps == 3
    shown_of = {purpose.split()[0] for purpose in shown.seen}
    assert shown_of == {"adapting", "measuring", "forecasting", "searching"}
    assert all(each.forecast.memory <= BUDGET for each in (*whole.finalists, *whole.front))
    assert [each.forecast.memory for each in whole.front] == sorted(
        each.forecast.memory for each in whole.front
    )
    assert [each.predicted for each in whole.front] == sorted(
        {each.predicted for each in whole.front}
    )
    assert whole.chosen.accuracy == max(each.accuracy or 0 for each in whole.finalists)
    assert set(whole.seconds) == {"start", "adaptation", "measurement", "search", "kit"}
    assert whole.macs["adaptation"] > 0
    assert "<svg" in (folder / FRONT).read_text()


def test_other_limits_use_what_was_measured(
    whole: Record, inputs: Path, search: Search, tmp_path: Path
) -> None:
    copytree(inputs / "whole.search", tmp_path / "work")
    limit = whole.chosen.forecast.macs / 1e6 - 0.01
    shown = Kill()
    second = search("smaller", shown, work=tmp_path / "work", macs=limit)
    assert shown.seen == {"forecasting memory", "searching for the best"}
    assert second.pairs == whole.pairs
    assert all(each.forecast.macs <= limit * 1e6 for each in second.finalists)


def test_the_seconds_of_a_search_are_those_of_all_its_processes(
    whole: Record, inputs: Path, tmp_path: Path
) -> None:
    copytree(inputs / "whole.search", tmp_path / "work")

    def before(limit: float, **ended: str) -> float:
        """Seconds before a process that ends, killed or with a kit, after 1000 more."""
        clock = Clock(math.inf, 1.0, time.monotonic())
        settings = ExtractorSettings(epochs=1, pairs=20, macs=limit)
        files = inputs / "photos", settings, inputs / "supernet.safetensors"
        begun = search_module.Search(*files, TinyTL(), tmp_path / "work", Silent(), clock)
        begun.journal.write(
            seconds={"search": sum(begun.journal.record.seconds.values()) + 1000}, **ended
        )
        return clock.before

    assert before(0.25) == 0  # that of other limits has built a kit
    assert 1000 < before(0.25) < 2000 < before(0.25, kit="built")
    assert before(0.25) == 0


def test_a_run_trains_the_kit_within_the_same_limits(
    whole: Record,
    inputs: Path,
    search: Search,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copytree(inputs / "whole.search", tmp_path / "work")
    commands: list[tuple[object, ...]] = []
    codes = [0, 1]

    def command(*arguments: object, quiet: bool) -> tuple[int, str]:
        assert quiet  # the search has a display of its own
        commands.append(arguments)
        return codes.pop(0), ""

    monkeypatch.setattr(adapting, "run_command", command)
    options = {"work": tmp_path / "work", "run": tmp_path / "run", "budget": BUDGET}
    search(**options)
    (words,) = commands
    assert words[:2] == ("train", inputs / "photos")
    told = dict(zip(words[2::2], words[3::2], strict=True))
    given = {"--kit": tmp_path / "kit", "--out": tmp_path / "run", "--budget": str(BUDGET)}
    assert told == {**given, "--epochs": "63"}  # of few photos, on which train makes no steps
    with pytest.raises(PocketuneError, match="is built, but training it has failed"):
        search(**options)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_search_whose_process_is_killed_ends_as_if_it_had_not_been(
    whole: Record, inputs: Path, search: Search, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", KILLED, str(inputs), str(tmp_path / "kit"), str(BUDGET)]
    killed = subprocess.run(command, cwd=Path(__file__).parents[2], check=False, timeout=200)
    assert killed.returncode == -signal.SIGKILL
    assert 0 < len(Record.read(tmp_path / "kit.search" / RECORD).pairs) < 20
    assert measured(search("kit", budget=BUDGET)) == measured(whole)


def test_repeating_resumes_the_kit_and_its_run(
    whole: Record, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copytree(inputs / "whole.search", tmp_path / "kit.search")
    commands: list[tuple[object, ...]] = []

    def repeated(**options: Any) -> Record:
        given = {"run": tmp_path / "run", "macs": 0.25, **options}
        return run(inputs, tmp_path / "kit", **given)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    def killed_while_training(_: str, photos: Path, *__: object, **___: object) -> tuple[int, str]:
        train(tmp_path / "kit", photos, tmp_path / "run", epochs=2, progress=KilledTraining())
        raise AssertionError

    def command(*arguments: object, quiet: bool) -> tuple[int, str]:
        commands.append(arguments)
        return run_command(*arguments, quiet=quiet)

    with monkeypatch.context() as patch:
        patch.setattr(search_module, "build_chosen", killed)
        with pytest.raises(KeyboardInterrupt):
            repeated()
    monkeypatch.setattr(adapting, "run_command", killed_while_training)
    with pytest.raises(Interrupted):
        repeated()
    kit = Kit.open(tmp_path / "kit").identity
    monkeypatch.setattr(search_module, "build_chosen", killed)  # is not built again
    monkeypatch.setattr(adapting, "run_command", command)
    first, second = repeated(), repeated()
    assert commands == [("train", "--resume", tmp_path / "run")]
    assert RunRecord.read(tmp_path / "run").steps == 6
    assert Kit.open(tmp_path / "run").identity == kit == first.kit
    assert measured(first) == measured(second)
    with pytest.raises(PocketuneError, match="run already contains a finished run"):
        repeated(macs=0.24)  # another search's kit is not that of the run


def test_the_kit_starts_from_the_adapted_values(
    whole: Record, inputs: Path, tmp_path: Path
) -> None:
    copytree(inputs / "whole.search", tmp_path / "kit.search")
    record = run(inputs, tmp_path / "kit", macs=0.25)
    kit, chosen = Kit.open(tmp_path / "kit"), record.chosen.forecast
    assert kit.manifest.network["subnet"]["depths"] == list(chosen.config.depths)
    assert kit.manifest.method["name"] == "tinytl"
    assert kit.manifest.classes == tuple(sorted(CLASSES))
    network = load_network(tmp_path / "kit.search" / CHOSEN)
    own, initial = network.state_dict(), kit.state()
    for name in ("features.0.1.bias", "classifier.1.weight"):
        assert np.array_equal(initial[name], own[name].numpy())
    adapted = load_file(tmp_path / "kit.search" / ADAPTED)
    assert torch.equal(own["classifier.1.weight"], adapted["value.classifier.1.weight"])
