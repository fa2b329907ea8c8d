"""`pocketune compare`: what its command line means."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from pocketune.cli.compare import compare
from pocketune.comparison import Comparison, Grid
from pocketune.errors import PocketuneError

from ..comparison.test_tables import CELL
from ..device.softmax_engine import write_photos


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`asked(*arguments)`: the grid and the options that the library gets."""
    calls: list[tuple[Grid, Path, dict[str, Any]]] = []

    def called(grid: Grid, out: Path, **options: Any) -> Comparison:
        calls.append((grid, out, options))
        return Comparison(())

    monkeypatch.setattr("pocketune.comparison.run.compare", called)
    monkeypatch.setattr("pocketune.comparison.compare", called)

    def ask(*arguments: str) -> tuple[Grid, Path, dict[str, Any]]:
        compare.main(list(arguments), standalone_mode=False)
        return calls[-1]

    return ask


def test_the_bundled_kits_are_compared_by_default(asked: Any, tmp_path: Path) -> None:
    write_photos(tmp_path / "photos", each=2)
    grid, out, options = asked(str(tmp_path / "photos"))
    assert sorted(kit.kit for kit in grid.kits) == ["blocks", "last"]
    assert (grid.seeds, grid.settings, grid.networks, grid.methods) == ((0,), {}, (), ())
    assert out == Path("compare")
    assert (options["ray"], options["keep_runs"]) == (False, False)


def test_networks_methods_and_settings(asked: Any) -> None:
    grid, _, options = asked(
        *("a/", "b.zip", "--network", "mobilenet_v2", "--width", "0.35", "--weights", "imagenet"),
        *("--method", "last", "--method", "blocks+signed", "--method-option", "blocks=2"),
        *("--size", "96", "--frozen-bits", "8", "--epochs", "3", "--clip", "2", "--seed", "4"),
        *("--seeds", "2", "--rate", "1e-3", "--rate", "0.01", "--keep-runs", "--ray"),
    )
    (network,) = grid.networks
    assert [each.photos for each in grid.photos] == ["a/", "b.zip"]
    assert (network.width, network.weights, network.size) == (0.35, "imagenet", 96)
    assert [method.method for method in grid.methods] == ["last", "blocks+signed"]
    assert [method.options for method in grid.methods] == [{}, {"blocks": 2}]
    assert all(method.frozen_bits == 8 for method in grid.methods)
    assert (grid.seeds, grid.rates, grid.kits) == ((4, 5), (1e-3, 0.01), ())
    assert grid.settings == {"epochs": 3, "clip": 2.0}
    assert (options["ray"], options["keep_runs"]) == (True, True)


def test_options_of_a_network_need_one(asked: Any) -> None:
    for option in (("--method", "last"), ("--width", "0.5"), ("--size", "96")):
        with pytest.raises(click.BadParameter, match="needs --network"):
            asked("a/", "--kit", "last", *option)


def test_the_runs_as_json(asked: Any, capsys: pytest.CaptureFixture[str]) -> None:
    asked("a/", "--kit", "last", "--json")
    assert json.loads(capsys.readouterr().out) == {"schema": 1, "cells": []}


@pytest.mark.parametrize("terminal", [False, True])
def test_the_table_is_drawn_on_a_terminal_and_is_markdown_elsewhere(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = replace(CELL, photos="[b]flowers", model="mobilenet_v2 0.35")
    monkeypatch.setattr(
        "pocketune.comparison.compare", lambda *args, **options: Comparison((cell,))
    )
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    compare.main(["a/", "--kit", "last"], standalone_mode=False)
    printed = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
    assert ("| ---: |" in printed) == (not terminal)
    assert "Mean ± standard deviation" in printed and "written to compare" in printed
    if terminal:
        assert printed.splitlines()[1].rstrip() == "[b]flowers"
        row = next(line for line in printed.splitlines() if "50.0" in line)
        assert row.split()[-8:] == ["50.0", "1", "1", "0", "0", "20", "30", "bytes"]


def test_a_file_describes_all_of_it(asked: Any, tmp_path: Path) -> None:
    write_photos(tmp_path / "photos")
    file = tmp_path / "c.toml"
    file.write_text('photos = "photos"\nkits = ["last"]\nseeds = 2\n')
    grid, out, _ = asked(str(file), "--out", "elsewhere")
    assert (grid.photos[0].photos, grid.seeds) == (str(tmp_path / "photos"), (0, 1))
    assert out == Path("elsewhere")
    with pytest.raises(click.BadParameter, match="write it there"):
        asked(str(file), "--seeds", "3")
    with pytest.raises(click.BadParameter, match=r"one \.toml file, or photos"):
        asked(str(file), "photos/")
    file.write_text('photos = "photos"\nkits = ["last"]\n[settings]\nheadlr = 1.0\n')
    with pytest.raises(PocketuneError, match=r"no setting 'headlr': choose from .*'head_lr', "):
        asked(str(file))


def test_an_option_that_no_method_has(asked: Any) -> None:
    options = ("--network", "resnet18", "--method", "last", "--method", "full")
    with pytest.raises(
        PocketuneError, match="none of the methods last, full has the option blocks"
    ):
        asked("photos/", *options, "--method-option", "blocks=2")


def test_a_rate_that_is_no_number(asked: Any) -> None:
    with pytest.raises(click.BadParameter, match="'fast' is not a number"):
        asked("photos/", "--kit", "last", "--rate", "fast")
