"""The author half from the commands: asked for when it is needed, and never in ``train`` itself."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pocketune.command import run_command
from pocketune.errors import PocketuneError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PACKAGES = ("torch", "onnx")


@contextmanager
def author_half(purpose: str) -> Iterator[None]:
    """Say how to install the author half, where an import in the context misses it."""
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

    In another process since PyTorch would stay in the memory of this one, which a budget counts.

    Args:
        network: The network's name.
        options: Other parameters of ``kit build``; those that are None are left to it, and each
            of a list is given.
        run: The folder of the run that copies the kit; the kit lies beside it for so long.

    Yields:
        The kit, and all values of its network as a ``.safetensors`` file.

    Raises:
        PocketuneError: There is no room for the kit.
        typer.Exit: The command failed and has said why; with its exit code.
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
            raise typer.Exit(code if code > 0 else 1)
        yield kit, values


@contextmanager
def _scratch_beside(run: Path) -> Iterator[Path]:
    """A folder next to a run, which leaves nothing behind, nor the folder above it for no run."""
    above = run.parent
    found = above.exists()
    try:
        above.mkdir(parents=True, exist_ok=True)
        scratch = tempfile.TemporaryDirectory(prefix=f".{run.name}.", dir=above)
    except OSError as error:
        raise PocketuneError(f"cannot write next to {run}: {error.strerror or error}") from error
    try:
        with scratch as folder:
            yield Path(folder)
    finally:
        if not found:
            with suppress(OSError):  # a run is in it
                above.rmdir()
