"""The folder of a plan or a comparison, where a second call goes on."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from pocketune.errors import PocketuneError
from pocketune.files import reading, shown, writing
from pocketune.kit.names import LAST, MANIFEST, METRICS, RESULT
from pocketune.locks import locked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PLAN = "plan.json"
COMPARISON = "compare.json"
_OTHERS = {
    **dict.fromkeys((LAST, METRICS, RESULT), "a run"),
    MANIFEST: "a kit",
    PLAN: "a plan",
    COMPARISON: "a comparison",
}


_LEFT = {"cells", "runs", "kits"}
"""What a comparison that was stopped early leaves."""


def _refuse_strange(folder: Path) -> None:
    """Refuse a folder with files that are none of ours, such as photos."""
    strange = sorted(
        entry.name
        for entry in folder.iterdir()
        if entry.name not in _LEFT and not entry.name.startswith(".")
    )
    if strange:
        raise PocketuneError(
            f"{folder} holds other files, such as {shown(strange[0])}: choose another folder"
        )


@contextmanager
def own_folder(folder: Path, own: str) -> Iterator[None]:
    """Create a folder, and keep other processes from working in it until the context ends.

    If nothing is put into it, it is removed.

    Args:
        folder: The folder.
        own: The file that marks it, `PLAN` or `COMPARISON`.

    Raises:
        PocketuneError: It belongs to something else or to another process, or cannot be created.
    """
    with reading(f"the folder {folder}"):
        for name, what in _OTHERS.items():
            if name != own and (folder / name).is_file():
                raise PocketuneError(f"{folder} holds {what}: choose another folder")
        if not (folder / own).is_file():
            with suppress(FileNotFoundError, NotADirectoryError):
                _refuse_strange(folder)
    with writing(f"the folder {folder}"):
        made = [each for each in (folder, *folder.parents) if not each.exists()]
        folder.mkdir(parents=True, exist_ok=True)
    lock = folder / ".lock"
    with locked(lock, f"another process is working in {folder}: wait until it ends"):
        try:
            yield
        finally:
            with suppress(OSError):
                lock.unlink()
                for each in made:
                    each.rmdir()
