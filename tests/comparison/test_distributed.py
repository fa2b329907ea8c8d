"""Runs over Ray, which is played by one process."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pocketune.comparison import compare
from pocketune.errors import PocketuneError

from .grids import grid, quiet


class FakeRay:
    """What `run_on_ray` uses of Ray, in one process."""

    def __init__(self, *machines: float) -> None:
        self.machines = machines
        self.cores: list[float] = []
        self.started: dict[str, Any] = {}

    def is_initialized(self) -> bool:
        return False

    def init(self, **options: Any) -> None:
        assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
        self.started = options

    def nodes(self) -> list[dict[str, Any]]:
        return [
            *({"Alive": True, "Resources": {"CPU": cores}} for cores in self.machines),
            {"Alive": True, "Resources": {}},
            {"Alive": False, "Resources": {"CPU": 1.0}},
        ]

    def remote(self, *, num_cpus: float) -> Any:
        self.cores.append(num_cpus)
        return lambda function: SimpleNamespace(remote=lambda *arguments: (function, arguments))

    def wait(self, tasks: list[Any]) -> tuple[list[Any], list[Any]]:
        return tasks[-1:], tasks[:-1]  # the last one ends first

    def get(self, task: Any) -> Any:
        function, arguments = task
        return function(*arguments)


@pytest.mark.usefixtures("in_process")
def test_ray_takes_a_series_a_machine(
    photos: Path, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeRay(2.0, 2.0)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    monkeypatch.setitem(sys.modules, "ray", fake)  # type: ignore[arg-type]
    result = compare(grid(photos, kits=[tiny, "last"]), tmp_path, ray=True, show=quiet)
    assert [cell.model for cell in result.cells] == ["tiny", "last"]  # in the grid's order
    assert not result.failed
    assert fake.cores == [2.0]
    assert fake.started == {"log_to_driver": False, "include_dashboard": False}


@pytest.mark.usefixtures("in_process")
def test_workers_of_ray_have_a_folder_of_their_own(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where `ray start` ran; paths are those of the caller."""
    fake, elsewhere = FakeRay(2.0), tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr(fake, "init", lambda **_: os.chdir(elsewhere))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    monkeypatch.setitem(sys.modules, "ray", fake)  # type: ignore[arg-type]
    monkeypatch.chdir(photos.parent)
    result = compare(grid(Path(photos.name), kits=["last"]), "out", ray=True, show=quiet)
    assert [cell.model for cell in result.cells] == ["last"]
    assert not result.failed


def test_machines_of_ray_have_one_size(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    monkeypatch.setitem(sys.modules, "ray", FakeRay(64.0, 4.0))  # type: ignore[arg-type]
    with pytest.raises(PocketuneError, match=r"have 4 cores and others 64.* use machines with"):
        compare(grid(photos), tmp_path, ray=True, show=quiet)


def test_without_ray(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(PocketuneError, match="needs ray, which is not installed"):
        compare(grid(photos), tmp_path, ray=True, show=quiet)
