"""Where image files lie: a folder on disk, behind the interface that archives share."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Protocol

from pocketune.data.skipped import shown
from pocketune.errors import PocketuneError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MANIFEST, STEP = "manifest.json", "step.onnx"  # the folder of a kit or run holds both


class Source(Protocol):
    """A tree of files that can be listed and read, by many threads at once."""

    @property
    def root(self) -> Path:
        """The folder or archive, for messages."""
        ...

    def names(self) -> list[str]:
        """The user's own files, relative to the root, with forward slashes, sorted."""
        ...

    def open(self, name: str) -> AbstractContextManager[IO[bytes]]:
        """A seekable binary file, closed on leaving the ``with`` block.

        Raises:
            OSError: if the file is missing or may not be read.
        """
        ...


class FolderSource:
    """The files under a folder; links are followed, but no folder is listed twice."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def names(self) -> list[str]:
        """The user's own files under the root, sorted.

        Raises:
            PocketuneError: if a folder may not be listed.
        """
        found: list[str] = []
        known = set(self.root.resolve().parents)
        tops = [self.root]
        for top in tops:  # grows by the links that are met, so that a folder goes before its links
            for folder, folders, files in os.walk(top, onerror=_refuse):
                here = Path(folder)
                if here.resolve() in known:
                    folders.clear()
                    continue
                known.add(here.resolve())
                folders[:] = [name for name in folders if not _is_hidden(name)]
                tops += [here / name for name in sorted(folders) if (here / name).is_symlink()]
                found.extend((here / file).relative_to(self.root).as_posix() for file in files)
        return users_own(found)

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """The file ``name``; an absolute name, as a CSV may give, is taken as it is."""
        if not _is_text(name):
            raise OSError("its name is not valid UTF-8; rename it")
        path = self.root / name
        if path.exists() and not path.is_file():  # opening a pipe would wait for ever
            raise OSError("not a regular file")
        with path.open("rb") as file:
            yield file


def users_own(names: Iterable[str]) -> list[str]:
    """Names of the files that are neither the system's nor in the folder of a run or kit, sorted.

    Runs are easily kept beside the photos that they were trained on.
    """
    everything = set(names)
    ours = tuple(
        name.removesuffix(MANIFEST)
        for name in everything
        if name.endswith(f"/{MANIFEST}") and name.removesuffix(MANIFEST) + STEP in everything
    )
    return sorted(n for n in everything if not _is_hidden(n) and not n.startswith(ours))


def _is_hidden(name: str) -> bool:
    """Whether a file is the system's: dot files, and what macOS puts into archives."""
    return any(part.startswith(".") or part == "__MACOSX" for part in PurePosixPath(name).parts)


def _is_text(name: str) -> bool:
    """Whether a file name is valid Unicode; one that is not could be neither printed nor saved."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _refuse(error: OSError) -> None:
    where = shown(str(error.filename))
    why = error.strerror or str(error)
    raise PocketuneError(
        f"the folder {where} cannot be opened ({why}); give yourself the right to read it"
    ) from error
