"""Exit codes, and one sentence for each error instead of a traceback."""

from __future__ import annotations

import shlex
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from pocketune.errors import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pocketune.data import Skipped
    from pocketune.errors import PocketuneError

FAILED = 1

_LISTED = 20

REMEDIES = {
    "add method": "add it to another, as in --method blocks+signed",
    "other task": "train with --network to build a kit for these labels",
    "masks": "train with --network deeplabv3, or another one that classifies pixels",
    "binary masks": "give --ignore none if it is a class, or --ignore 255 to ignore it",
    "build kit": "build one with: pocketune kit build",
    "saved network": "give a file that pocketune prune or pocketune retrain has written",
    "supernet": "give a file that pocketune pretrain-supernet has written",
    "resume": "resume with: pocketune train --resume {run}",
}
"""What to do on the command line, by the key of a `Remedy`."""


def message_of(error: PocketuneError) -> str:
    """The message of an error, with its remedy worded for the command line."""
    if error.remedy is None:
        return str(error)
    values = {name: shlex.quote(str(value)) for name, value in error.remedy.values.items()}
    return f"{error.message}; {REMEDIES[error.remedy.key].format(**values)}"


def print_error(message: str) -> None:
    """Print a line to standard error."""
    with suppress(OSError):  # the terminal may be closed
        print(message, file=sys.stderr, flush=True)


def print_skipped(skipped: Sequence[Skipped]) -> None:
    """Print the number of skipped files, and the first of them with the reasons."""
    if not skipped:
        return
    print(f"{counted(len(skipped), 'file')} skipped:")
    for file in skipped[:_LISTED]:
        print(f"  {file.name}: {file.reason}")
    if len(skipped) > _LISTED:
        print(f"  and {len(skipped) - _LISTED} more")
