"""How commands end: exit codes, and one sentence instead of a traceback."""

from __future__ import annotations

import shlex
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pocketune.data import Skipped
    from pocketune.errors import PocketuneError

FAILED = 1
STOPPED = 130
"""As shells report a command that Ctrl-C has ended."""

_LISTED = 20

REMEDIES = {
    "add method": "add it to another, as in --method blocks+signed",
    "other task": "train with --network to build a kit for these labels",
    "build kit": "build one with: pocketune kit build",
    "saved network": "give a file that pocketune prune or pocketune retrain has written",
    "resume": "resume with: pocketune train --resume {run}",
    "smaller batch": "build one with --network NAME --batch {batch}, or with pocketune kit build",
}
"""By the key of a `Remedy`, the options and commands that the library does not know."""


def message_of(error: PocketuneError) -> str:
    """What is wrong, and what to do about it on the command line."""
    if error.remedy is None:
        return str(error)
    values = {name: shlex.quote(str(value)) for name, value in error.remedy.values.items()}
    return f"{error.message}; {REMEDIES[error.remedy.key].format(**values)}"


def tell(message: str) -> None:
    """Print a line to standard error."""
    with suppress(OSError):  # its terminal may be gone
        print(message, file=sys.stderr, flush=True)


def print_skipped(skipped: Sequence[Skipped]) -> None:
    """Print how many files were skipped, and the first of them with the reasons."""
    if not skipped:
        return
    print(f"{len(skipped)} file{'s' * (len(skipped) > 1)} skipped:")
    for file in skipped[:_LISTED]:
        print(f"  {file.name}: {file.reason}")
    if len(skipped) > _LISTED:
        print(f"  and {len(skipped) - _LISTED} more")
