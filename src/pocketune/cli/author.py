"""The author half, for commands that need it. `train` runs it in a separate process."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pocketune.errors import PocketuneError
from pocketune.files import writing
from pocketune.locks import locked
from pocketune.options import flag
from pocketune.processes.command import run_command

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


_IN_USE = ".lock"
"""The file in a temporary folder that is locked while the folder is used."""


def built(network: str, size: object, batch: object, method: object) -> str:
    """A line about a kit that was built."""
    return f"built a kit of {network}: {size} px, batch {batch}, method {method}"


@contextmanager
def built_kit(
    network: str, options: Mapping[str, object], run: Path
) -> Iterator[tuple[Path, Path]]:
    """Build a temporary kit with `pocketune kit build`; it is removed when the context ends.

    The kit is built in another process, because PyTorch would stay in the memory of this one, which
    the budget limits.

    Args:
        network: The network's name.
        options: Other options of `kit build`; see `typed_options`.
        run: The run folder that will copy the kit; the kit is kept next to it.

    Yields:
        The kit, and all values of its network as a `.safetensors` file.

    Raises:
        PocketuneError: The kit cannot be written.
        click.exceptions.Exit: The command failed and has printed why; with its exit code.
    """
    with scratch_beside(run) as folder:
        kit, values = folder / "kit", folder / "network.safetensors"
        typed = typed_options({**options, "out": kit, "save_network": values})
        run_or_exit("kit", "build", network, *typed, quiet=True)
        print(built(network, options["size"], options["batch"], options["method"]), flush=True)
        yield kit, values


def run_or_exit(*words: object, quiet: bool = False) -> None:
    """Run `pocketune` with these arguments in another process.

    Args:
        words: The arguments.
        quiet: Do not show its standard output.

    Raises:
        click.exceptions.Exit: The command failed and has printed why; with its exit code.
    """
    code, _ = run_command(*words, quiet=quiet)
    if code:
        raise click.exceptions.Exit(code if code > 0 else 1)


def typed_options(options: Mapping[str, object]) -> list[object]:
    """Options as they are typed; None stands for the default, and a list repeats an option."""
    words: list[object] = []
    for name, value in options.items():
        for each in value if isinstance(value, list) else [value]:
            if each is not None and each is not False:
                words += [flag(name)] if each is True else [flag(name), each]
    return words


@contextmanager
def scratch_beside(run: Path) -> Iterator[Path]:
    """A temporary folder next to a run; a parent created for it is removed if it stays empty."""
    remove_abandoned(run)
    above = run.absolute().parent
    found = above.exists()
    with writing(above):
        above.mkdir(parents=True, exist_ok=True)
        scratch = tempfile.TemporaryDirectory(prefix=_beside(run), dir=above)
    try:
        with scratch as folder, locked(Path(folder) / _IN_USE, f"{folder} is in use"):
            yield Path(folder)
    finally:
        if not found:
            with suppress(OSError):  # not empty: it holds the run
                above.rmdir()


def remove_abandoned(run: Path) -> None:
    """Remove the temporary folders next to a run that killed processes left.

    Those in use are locked; where the file system has no locks, nobody can tell, and all stay.
    """
    with suppress(OSError):
        for folder in list(run.absolute().parent.iterdir()):
            if folder.name.startswith(_beside(run)) and (folder / _IN_USE).is_file():
                _remove_unused(folder)


def _remove_unused(folder: Path) -> None:
    with suppress(PocketuneError), locked(folder / _IN_USE, f"{folder} is in use") as is_locked:
        if is_locked:
            shutil.rmtree(folder, ignore_errors=True)


def _beside(run: Path) -> str:
    """The beginning of the names of temporary folders next to a run."""
    return f".{run.absolute().name}.kit-"
