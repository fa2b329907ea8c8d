"""Names that installed packages add, found by their entry points."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pocketune.comparison import Grid
from pocketune.errors import PocketuneError
from pocketune.extensions import _entry_points
from pocketune.methods import create_method, list_methods, registry
from pocketune.networks import list_networks
from pocketune.networks.registry import _networks
from pocketune.objectives.base import OBJECTIVES, objective_of
from pocketune.schema import read_object
from pocketune.tasks import TASKS, Classification, Task, task_named
from pocketune.tasks.base import list_tasks
from pocketune.weights import create_network

from .cli.conftest import run_command

Install = Callable[..., None]

METHOD = """
from dataclasses import dataclass
from pocketune.methods import TopBlocks, register_method

@register_method("topmost")
@dataclass(frozen=True)
class Topmost(TopBlocks):
    '''Train one block.'''
    blocks: int = 1
"""
NETWORK = """
from pocketune.networks import register_network
from pocketune.networks.architectures.mobilenet_v2 import mobilenet_v2

register_network("mobilenet_v2_again")(mobilenet_v2)
"""
TASK = """
from dataclasses import dataclass
from pocketune.tasks import Classification, register_task

@register_task
@dataclass(frozen=True)
class Sorting(Classification):
    name = "sorting"
"""
OBJECTIVE = """
from pocketune.objectives import register_objective
from pocketune.objectives.classification import CrossEntropy
from sorting import Sorting

@register_objective(Sorting)
class SortingLoss(CrossEntropy):
    pass
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a module as a package with one entry point; nothing of it is left after a test."""
    registries = (registry._methods, _networks, TASKS, OBJECTIVES)
    before = [dict(each) for each in registries]
    monkeypatch.syspath_prepend(tmp_path)
    modules: list[str] = []

    def put(kind: str, name: str, code: str, module: str | None = None) -> None:
        module = module or name
        (tmp_path / f"{module}.py").write_text(code, encoding="utf-8")
        place = tmp_path / f"{module}-1.0.dist-info"
        place.mkdir()
        (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (place / "entry_points.txt").write_text(f"[pocketune.{kind}]\n{name} = {module}\n")
        modules.append(module)
        _entry_points.cache_clear()

    yield put
    for each, names in zip(registries, before, strict=True):
        each.clear()
        each.update(names)  # type: ignore[arg-type]
    for module in modules:
        sys.modules.pop(module, None)
    _entry_points.cache_clear()


def test_a_method_is_imported_when_it_is_asked_for(install: Install) -> None:
    install("methods", "topmost", METHOD)
    assert "topmost" not in sys.modules
    create_method("blocks")
    assert "topmost" not in sys.modules
    assert str(create_method("topmost+signed", blocks=2)) == "Topmost(blocks=2) + SignedBackward()"


def test_the_command_line_finds_methods_of_packages(install: Install, tmp_path: Path) -> None:
    install("methods", "topmost", METHOD)
    assert list_methods()[-1] == "topmost"
    done = run_command(tmp_path, "methods")  # the folder is on the path of a process in it
    assert "topmost" in done.stdout, done.stderr


def test_a_comparison_knows_them(install: Install) -> None:
    install("methods", "topmost", METHOD)
    grid = {"photos": ["photos"], "networks": [{"network": "mobilenet_v2"}], "methods": ["topmost"]}
    assert Grid.from_dict(grid)


def test_a_network_of_a_package(install: Install) -> None:
    install("networks", "mobilenet_v2_again", NETWORK)
    network = create_network("mobilenet_v2_again", width=0.35, classes=3)
    assert sum(each.numel() for each in network.parameters()) > 100_000
    assert "mobilenet_v2_again" in list_networks()


def test_a_task_of_a_package_and_its_loss_are_modules_of_their_own(install: Install) -> None:
    install("tasks", "sorting", TASK)
    install("objectives", "sorting", OBJECTIVE, "sorting_loss")
    task = task_named("sorting")(("a", "b"))
    assert "sorting_loss" not in sys.modules  # the device needs no torch for it
    assert list_tasks()[-1] == "sorting"
    assert type(objective_of(task)).__name__ == "SortingLoss"


def test_a_kit_names_a_task_of_a_package(install: Install) -> None:
    install("tasks", "sorting", TASK)
    values = {**json.loads(json.dumps(Classification(("a", "b")).to_dict())), "name": "sorting"}
    task = read_object(Task, values, "kit")  # type: ignore[type-abstract]
    assert (task.name, task.classes) == ("sorting", ("a", "b"))


def test_a_package_that_cannot_be_imported_is_named(install: Install) -> None:
    install("methods", "topmost", "import no_such_library")
    message = "the method 'topmost' of the package topmost cannot be imported, ModuleNotFoundError"
    with pytest.raises(PocketuneError, match=message):
        create_method("topmost")
    with pytest.warns(UserWarning, match=message):
        assert "topmost" not in list_methods()


def test_a_module_that_registers_something_else_adds_no_name(install: Install) -> None:
    install("methods", "lowest", METHOD, "topmost")
    with pytest.raises(PocketuneError, match="there is no method 'lowest'"):
        create_method("lowest")
