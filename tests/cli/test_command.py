"""Commands from the fields of dataclasses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from pocketune.cli.command import Group, command, given
from pocketune.cli.options import argument, shown_name
from pocketune.options import option

Call = Callable[[str], Result]


@dataclass(frozen=True, kw_only=True)
class Named:
    name: str = argument("What it is.", metavar="NAME")


@dataclass(frozen=True, kw_only=True)
class Size:
    width: int = option("From side to side.", default=3, metavar="CM", at_least=1)
    height: float | None = option("From top to bottom.", default=None, unset="the width")


@dataclass(frozen=True, kw_only=True)
class Box(Size):
    lid: list[str] | None = option("A lid; can be repeated.", default=None)
    paint: str = option("Color.", default="red", choices=("red", "blue"), panel="Looks")
    size: str = option(
        "How large.", default="small", choices=("small", "medium", "large", "huge"), panel="Looks"
    )
    gift_wrapped: bool = option("Wrap it.", default=False, panel="Looks")
    label: Path | None = option("A file.", default=None)


@dataclass(frozen=True, kw_only=True)
class Weight:
    weight: float = option("In kg.")
    files: list[str] = argument("What is in it.", metavar="FILES...")


got: list[object] = []


@command("pocketune pack it", "pocketune pack it --lid a")
def pack(named: Named, box: Box) -> None:
    """Pack something.

    With care.
    """
    got[:] = [set(given()), named, box]


@command()
def send(weight: Weight) -> None:
    """Send something."""
    got[:] = [weight]


@pytest.fixture
def call() -> Call:
    commands = {"pack": pack, "send": send}
    return lambda line: CliRunner().invoke(commands[line.split()[0]], line.split()[1:])


def test_fields_are_arguments_and_options(call: Call) -> None:
    line = "pack it --width 5 --height 2 --lid a --lid b --gift-wrapped --label x.txt"
    assert call(line).exit_code == 0
    box = Box(width=5, height=2.0, lid=["a", "b"], gift_wrapped=True, label=Path("x.txt"))
    assert got[1:] == [Named(name="it"), box]


def test_defaults_are_those_of_the_fields(call: Call) -> None:
    assert call("pack it").exit_code == 0
    assert got == [{"name"}, Named(name="it"), Box()]


def test_given_options_differ_from_defaults(call: Call) -> None:
    assert call("pack it --width 3 --paint red").exit_code == 0
    assert got[0] == {"name", "width", "paint"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("pack", "Missing argument 'NAME'"),
        ("send a --weight", "requires an argument"),
        ("send a", "Missing option '--weight'"),
        ("send --weight 1", "Missing argument 'FILES...'"),
        ("pack it --width wide", "'wide' is not a valid integer."),
        ("pack it --width 0", "0 is not in the range x>=1"),
        ("pack it --height high", "'high' is not a valid float"),
        ("pack it --paint green", "'green' is not one of 'red', 'blue'"),
        ("pack it --widht 3", "--width"),
    ],
)
def test_what_does_not_fit_is_a_usage_error(line: str, said: str, call: Call) -> None:
    result = call(line)
    assert result.exit_code == 2
    assert said in result.output


@pytest.mark.parametrize(("line", "hints"), [("pack my box", True), ("pack my bag", False)])
def test_a_path_with_a_space_has_to_be_quoted(
    line: str, hints: bool, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my box").mkdir()
    output = call(line).output
    assert "unexpected extra argument" in output
    assert ("Quote a path with a space: 'my box'" in output) == hints


def test_the_many_words_of_a_pattern_are_not_all_joined(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[str]()
    monkeypatch.setattr("pocketune.cli.command.os.path.exists", asked.append)
    assert "unexpected extra arguments" in call(f"pack {' '.join(map(str, range(500)))}").output
    assert 500 < len(asked) < 10 * 500


def test_several_files_are_a_list(call: Call) -> None:
    assert call("send a --weight 1.5 b").exit_code == 0
    assert got == [Weight(weight=1.5, files=["a", "b"])]


def test_names_in_messages() -> None:
    assert [shown_name(each) for each in pack.fields.values()] == [
        *("NAME", "--width", "--height", "--lid", "--paint", "--size", "--gift-wrapped", "--label"),
    ]


def test_help_names_each_option_with_its_default_in_its_panel(call: Call) -> None:
    text = call("pack --help").output
    assert "Usage: pack [OPTIONS] NAME" in text
    places = [text.index(part) for part in ("Pack something.", "With care.", "─ Arguments")]
    places += [text.index(f"─ {panel}") for panel in ("Options", "Looks")]
    places += [text.index("Examples"), text.index("pocketune pack it --lid a")]
    assert places == sorted(places)
    words = " ".join(text.replace("│", " ").split())
    for part in ("CM", "[default: 3]", "[default: the width]", "red|blue", "[required]"):
        assert part in words
    assert "NAME How large. [one of small, medium, large, huge] [default: small]" in words
    assert "False" not in text
    assert "None" not in text


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Group:
    return Group("pocketune", "A group.", {"Some": {"train": "train:train", "kit": "kit:kit"}})


def test_a_group_imports_its_commands_when_they_are_asked_for(group: Group) -> None:
    context = click.Context(group, info_name="pocketune")
    assert group.list_commands(context) == ["train", "kit"]
    found = group.get_command(context, "train")
    assert found is not None
    assert found.name == "train"
    assert group.get_command(context, "fly") is None


@pytest.mark.parametrize(
    ("name", "said"),
    [("trian", "No such command 'trian'. Did you mean 'train'?"), ("fly", "command 'fly'.\n")],
)
def test_an_unknown_command_names_the_nearest(name: str, said: str, group: Group) -> None:
    result = CliRunner().invoke(group, [name])
    assert result.exit_code == 2
    assert said in result.output
