"""Exit codes, and one sentence for each error instead of a traceback."""

from __future__ import annotations

import errno
import os
import shlex
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from pocketune.errors import PocketuneError, counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pocketune.data import Skipped

FAILED = 1

_LISTED = 20
_NO_MEMORY = "failed to map segment", "annot allocate memory"
_NO_THREAD = "can't start new thread", "pthread_create failed"

REMEDIES = {
    "add method": "add it to another, as in --method blocks+signed",
    "other task": "train with --network to build a kit for these labels",
    "masks": "train with --network deeplabv3, or another one that classifies pixels",
    "binary masks": "give --ignore none if it is a class, or --ignore 255 to ignore it",
    "saved network": "give a file that pocketune prune or pocketune retrain has written",
    "supernet": "give a file that pocketune pretrain-supernet has written",
    "run exists": "choose another folder with --out, or go on with it: pocketune train --resume "
    "{run}",
    "train further": "train it further with --kit {run}",
    "resume": "resume with: pocketune train --resume {run}",
}
"""What to do on the command line, by the key of a `Remedy`."""


def message_of(error: PocketuneError) -> str:
    """The message of an error, with its remedy worded for the command line."""
    if error.remedy is None:
        return str(error)
    values = {name: shlex.quote(str(value)) for name, value in error.remedy.values.items()}
    return f"{error.message}; {REMEDIES[error.remedy.key].format(**values)}"


def explained(error: Exception) -> str | None:
    """The sentence for an error that is no bug; None for a bug."""
    if isinstance(error, PocketuneError):
        return message_of(error)
    if isinstance(error, FileNotFoundError) and _folder_is_gone():
        return "the working folder has been removed; change to another one"
    denied = _denied(error)
    if denied == "memory":
        return "the memory that this process may take ran out; see --budget"
    return denied and f"the {denied} that this process may have ran out; allow more"


def _folder_is_gone() -> bool:
    """Whether the working folder no longer exists, so that no relative path can be used."""
    try:
        os.getcwd()  # noqa: PTH109 - a path of it would raise the same
    except FileNotFoundError:
        return True
    return False


def _denied(error: BaseException) -> str | None:
    """What the system gives no more of, where that is the cause of an error.

    Libraries word it in ways of their own: numpy and PyTorch as a failed import, ONNX Runtime as a
    failed call.
    """
    number, text = getattr(error, "errno", None), str(error)
    if isinstance(error, MemoryError) or number == errno.ENOMEM:
        return "memory"
    if isinstance(error, ImportError) and any(words in text for words in _NO_MEMORY):
        return "memory"
    if number == errno.EAGAIN or any(words in text for words in _NO_THREAD):
        return "threads and processes"
    return "open files" if number in (errno.EMFILE, errno.ENFILE) else None


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
