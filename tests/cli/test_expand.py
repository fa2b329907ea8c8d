"""Options from the fields of dataclasses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner, Result

from pocketune.cli.expand import expand

Call = Callable[[str], Result]


@dataclass(frozen=True)
class Size:
    width: Annotated[int, typer.Option(metavar="CM", help="From side to side.")] = 3
    height: int | None = None


@dataclass(frozen=True)
class Box(Size):
    lids: Annotated[list[str] | None, typer.Option("--lid")] = None


got: list[object] = []


@expand
def pack(context: typer.Context, name: str, *, box: Box, heavy: bool = False) -> None:
    """Pack something."""
    got[:] = [set(context.params), name, box, heavy]


@expand
def send(place: str | None = None, *, size: Size) -> None:
    got[:] = [place, size]


@pytest.fixture
def call() -> Call:
    app = typer.Typer()
    app.command()(pack)
    app.command()(send)
    return lambda line: CliRunner().invoke(app, line.split())


def test_fields_are_options(call: Call) -> None:
    assert call("send --width 5 --height 2 --place there").exit_code == 0
    assert got == ["there", Size(5, 2)]


def test_defaults_are_those_of_the_fields(call: Call) -> None:
    assert call("send").exit_code == 0
    assert got == [None, Size()]


def test_an_inherited_field_comes_first_and_names_and_types_are_kept(call: Call) -> None:
    assert call("pack it --lid a --lid b --heavy").exit_code == 0
    assert got == [
        {"name", "width", "height", "lids", "heavy"},
        "it",
        Box(lids=["a", "b"]),
        True,
    ]
    assert call("pack it --width wide").exit_code == 2


def test_help(call: Call) -> None:
    text = call("pack --help").output
    assert "Pack something." in text
    assert "From side to side." in text
    assert text.index("--width") < text.index("--height") < text.index("--lid")
