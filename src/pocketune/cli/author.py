"""The author half for commands that need it: imported on demand, and never by ``train`` itself."""

from __future__ import annotations

import json
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pocketune.command import run_command
from pocketune.errors import PocketuneError
from pocketune.files import writing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pocketune.methods import Method

_PACKAGES = ("torch", "onnx")


@contextmanager
def author_half(purpose: str) -> Iterator[None]:
    """Say how to install the author half if an import in the context needs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _PACKAGES:
            raise
        raise PocketuneError(
            f"{purpose} needs {error.name}, which is not installed; install it with: "
            'pip install "pocketune[author]"'
        ) from error


@contextmanager
def built_kit(
    network: str, options: Mapping[str, object], run: Path
) -> Iterator[tuple[Path, Path]]:
    """A kit that ``pocketune kit build`` makes in another process, until the context ends.

    The process is another one because PyTorch would stay in the memory of this one, which the
    budget counts.

    Args:
        network: The network's name.
        options: Other options of ``kit build``; None leaves one at its default, a list repeats it.
        run: The folder of the run that copies the kit; the kit lies beside it until then.

    Yields:
        The kit, and all values of its network as a ``.safetensors`` file.

    Raises:
        PocketuneError: There is no room for the kit.
        click.exceptions.Exit: The command failed and has said why; with its exit code.
    """
    with _scratch_beside(run) as folder:
        kit, values = folder / "kit", folder / "network.safetensors"
        arguments: list[object] = []
        for name, value in {**options, "out": kit, "save_network": values}.items():
            for each in value if isinstance(value, list) else [value]:
                if each is not None:
                    arguments += [f"--{name.replace('_', '-')}", each]
        code, _ = run_command("kit", "build", network, *arguments)
        if code:
            raise click.exceptions.Exit(code if code > 0 else 1)
        yield kit, values


@contextmanager
def _scratch_beside(run: Path) -> Iterator[Path]:
    """A temporary folder next to a run; a parent made for it is removed too if it stays empty."""
    above = run.parent
    found = above.exists()
    with writing(above):
        above.mkdir(parents=True, exist_ok=True)
        scratch = tempfile.TemporaryDirectory(prefix=f".{run.name}.", dir=above)
    try:
        with scratch as folder:
            yield Path(folder)
    finally:
        if not found:
            with suppress(OSError):  # a run is in it
                above.rmdir()


def parse_method(
    method: str, blocks: int | None, method_option: Iterable[str] | None, **step: int
) -> Method:
    """One method, or the sum of several.

    Args:
        method: a method's name, or several with ``+`` between them.
        blocks: short for the option ``blocks=...``.
        method_option: each ``NAME=VALUE``; in a sum, for all methods that have an option of that
            name.
        step: ``batch`` and ``size`` of the images, for methods that measure with them.

    Raises:
        PocketuneError: there is no such method, or none of them has such an option.
    """
    with author_half("a method"):
        from pocketune.methods import Sum, create_method, method_to_dict

    knobs = dict(_parse_option(option) for option in method_option or ())
    if blocks is not None:
        knobs["blocks"] = blocks
    terms, unknown = [], set(knobs)
    several = "+" in method
    for name in method.split("+"):
        known = method_to_dict(create_method(name)).keys()
        given = {k: v for k, v in knobs.items() if k in known or not several}
        terms.append(create_method(name, **{k: v for k, v in step.items() if k in known} | given))
        unknown -= known
    if several and unknown:
        raise PocketuneError(f"none of the methods {method} has the option {min(unknown)}")
    return Sum(tuple(terms)) if several else terms[0]


def _parse_option(text: str) -> tuple[str, Any]:
    """``blocks=3``, ``signed=false`` and ``norm=shift`` are a number, a truth value, a word.

    ``layers=stem.0,head.0`` is a list of two words; one of one has a comma at its end.
    """
    name, equals, value = text.partition("=")
    if not (name and equals and value.strip(",")):
        raise PocketuneError(f"--method-option {text!r} is not of the form NAME=VALUE")
    try:
        return name, json.loads(value.lower() if value.lower() in ("true", "false") else value)
    except ValueError:
        words = [word for word in value.split(",") if word]
        return name, words if "," in value else value
