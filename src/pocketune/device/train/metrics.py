"""``metrics.jsonl``: one JSON object a line for everything that happened in a run."""

from __future__ import annotations

import json
import math
import os
from typing import TYPE_CHECKING, Any

from pocketune.errors import PocketuneError

if TYPE_CHECKING:
    from pathlib import Path


class MetricsFile:
    """Appends lines; each reaches the operating system before :meth:`write` returns.

    Args:
        path: The file; made where it does not exist.
        keep: Bytes to keep of what is there. Lines after a checkpoint are cut off when the run
            goes on from that checkpoint, so that no step is told twice.

    Raises:
        PocketuneError: The file cannot be written.
    """

    def __init__(self, path: Path, keep: int = 0) -> None:
        self.path = path
        try:
            self._file = path.open("ab", buffering=0)
            if self._file.tell() > keep:
                self._file.truncate(keep)
                self._file.seek(keep)
        except OSError as error:
            raise self._failure(error) from error

    def write(self, kind: str, **values: Any) -> None:
        """Append a line; numbers that JSON does not know (nan, inf) become null.

        Raises:
            PocketuneError: The disk is full, or the file cannot be written.
        """
        known = {key: None if _is_odd(value) else value for key, value in values.items()}
        line = json.dumps({"kind": kind, **known}).encode() + b"\n"
        try:
            # A raw file may take less than it was given, where a disk fills up.
            while line:
                line = line[self._file.write(line) or 0 :]
        except OSError as error:
            raise self._failure(error) from error

    def sync(self) -> int:
        """Put all lines on the disk; returns the file's length in bytes."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._failure(error) from error
        return self._file.tell()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _failure(self, error: OSError) -> PocketuneError:
        return PocketuneError(f"could not write {self.path}: {error.strerror or error}")


def _is_odd(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
