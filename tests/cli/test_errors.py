"""The command line's wording of the library's errors."""

import ast
import errno
import string
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import pocketune
from pocketune.cli.errors import REMEDIES, explained, message_of, name_options
from pocketune.errors import PocketuneError, Remedy
from pocketune.kit.bundled import bundled_kit
from pocketune.options import option, option_fields

from ..syntax import syntax_tree

SOURCE = Path(pocketune.__file__).parent


@cache
def remedies() -> list[ast.Call]:
    """Each place of the library that makes a `Remedy`."""
    nodes = (node for path in SOURCE.rglob("*.py") for node in ast.walk(syntax_tree(path)))
    calls = (node for node in nodes if isinstance(node, ast.Call))
    return [call for call in calls if getattr(call.func, "id", "") == "Remedy"]


def test_every_remedy_of_the_library_has_words_and_nothing_else_has() -> None:
    assert {ast.literal_eval(call.args[0]) for call in remedies()} == set(REMEDIES)


def test_words_name_no_value_that_is_not_given() -> None:
    for call in remedies():
        key, python = (ast.literal_eval(argument) for argument in call.args)
        given = {keyword.arg for keyword in call.keywords}
        for words in (python, REMEDIES[key]):
            named = {name for _, name, _, _ in string.Formatter().parse(words) if name}
            assert {name.partition("!")[0] for name in named} <= given


def test_python_and_the_command_line_say_the_same_in_their_own_words() -> None:
    error = PocketuneError("stopped", remedy=Remedy("resume", "resume({run!r})", run="my run"))
    assert str(error) == "stopped; resume('my run')"
    assert message_of(error) == "stopped; resume with: pocketune train --resume 'my run'"


@dataclass
class Options:
    """Options of a command."""

    top: int = option("Number.", default=1)
    window: str = option("Window.", default="whole")
    val_fraction: float = option("Fraction.", default=0.1)
    only_half: bool = option("Half.", default=False)


@pytest.mark.parametrize(
    ("message", "typed"),
    [
        ("top=0 must be a whole number", "--top 0 must be a whole number"),
        ("window='slide' is for masks", "--window slide is for masks"),
        ("val_fraction must be below 1", "--val-fraction must be below 1"),
        ("give top=2 and only_half=False", "give --top 2 and no --only-half"),
        ("top and val_fraction are of none", "--top and --val-fraction are of none"),
        ("x needs photos: set val_fraction above 0", "x needs photos: set --val-fraction above 0"),
        ("only_half=True has no effect", "--only-half has no effect"),
        ("/tmp/val_fraction is on top of a window", "/tmp/val_fraction is on top of a window"),
        ("the class 'top=0' has no photo", "the class 'top=0' has no photo"),
        ("photos, top: a top needs a window", "photos, top: a top needs a window"),
        ("photos: top and window must differ", "photos: --top and --window must differ"),
        ("top=1/a is missing: set top=0", "top=1/a is missing: set --top 0"),
    ],
)
def test_options_are_named_as_they_are_typed(message: str, typed: str) -> None:
    error = PocketuneError(message)
    name_options(error, option_fields(Options), [Path("top=1"), "photos", 5])
    assert message_of(error) == typed


def test_a_bundled_kit_is_named_as_it_is_typed() -> None:
    assert message_of(PocketuneError(f"{bundled_kit('last')} is a kit")) == "last is a kit"


def test_without_a_remedy_the_message_is_all() -> None:
    assert message_of(PocketuneError("it is empty; fill it")) == "it is empty; fill it"


@cache
def texts(path: Path) -> list[str]:
    """The string literals of a file that are not docstrings."""
    nodes = list(ast.walk(syntax_tree(path)))
    docs = {node.value for node in nodes if isinstance(node, ast.Expr)}
    literals = [node for node in nodes if isinstance(node, ast.Constant) and node not in docs]
    return [node.value for node in literals if isinstance(node.value, str)]


RUNS_COMMANDS = {
    "demo/compare.py",
    "extractor/adapting.py",
    "planner/probe.py",
    "reporting/words.py",  # shows the command that repeats a run
    "device/memory/process.py",  # reads "r--p"
    "options.py",  # makes the name of an option
    "reporting/charts/style.py",  # writes CSS variables, "var(--ink)"
}
LIBRARY = sorted(
    path.relative_to(SOURCE).as_posix()
    for path in SOURCE.rglob("*.py")
    if path.relative_to(SOURCE).parts[0] != "cli"
)


def test_the_library_names_no_command_and_no_option() -> None:
    found = {
        (name, text)
        for name in LIBRARY
        if name not in RUNS_COMMANDS
        for text in texts(SOURCE / name)
        if "--" in text.replace("---", "") or "pocketune kit" in text or "pocketune train" in text
    }
    assert not {item for item in found if "pip install" not in item[1]}


def test_nor_another_command() -> None:
    words = ("pocketune prune", "pocketune retrain", "pocketune profile")
    said = {text for name in LIBRARY for text in texts(SOURCE / name)}
    assert not [text for text in said if any(word in text for word in words)]


@pytest.mark.parametrize(
    ("error", "denied"),
    [
        (MemoryError(), "memory"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "memory"),
        (ImportError("libtorch.so: failed to map segment from shared object"), "memory"),
        (RuntimeError("can't start new thread"), "threads and processes"),
        (RuntimeError("PosixThread(...) pthread_create failed, error code: 11"), "threads and"),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), "threads and"),
        (OSError(errno.EMFILE, "Too many open files"), "open files"),
        (ImportError("No module named 'numpy'"), None),
        (RuntimeError("a bug"), None),
        (FileNotFoundError(errno.ENOENT, "No such file"), None),
    ],
)
def test_what_the_system_denies_is_no_bug(error: Exception, denied: str | None) -> None:
    found = explained(error)
    assert found is None if denied is None else f"the {denied}" in str(found)
