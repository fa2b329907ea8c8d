"""Exit codes, and one sentence for each error instead of a traceback."""

from __future__ import annotations

import errno
import os
import re
import shlex
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pocketune.cli.options import shown_name
from pocketune.errors import PocketuneError, counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pocketune.data import Skipped
    from pocketune.options import OptionField

FAILED = 1

_LISTED = 20
_NO_MEMORY = "failed to map segment", "annot allocate memory"
_NO_THREAD = "can't start new thread", "pthread_create failed"

REMEDIES = {
    "add method": "add it to another, as in --method blocks+signed",
    "classes": "to learn classes, train a kit for them, such as the bundled blocks",
    "other task": "to learn these labels, train a kit for them, such as the bundled attributes",
    "masks": "train with --kit masks, or with a network that classifies pixels, such as "
    "--network deeplabv3",
    "no masks": "or give --kit blocks if they are two classes",
    "binary masks": "give --ignore none if it is a class, or --ignore 255 to ignore it",
    "saved network": "give a file that pocketune prune or pocketune retrain has written",
    "supernet": "give a file that pocketune pretrain-supernet has written",
    "run exists": "choose another folder with --out, or go on with it: pocketune train --resume "
    "{run}",
    "finished run exists": "choose another folder with --out, or train it further with --kit {run} "
    "--out NEW",
    "photos moved": "give their new location as PHOTOS, or to export and report with --photos",
    "save delta": "make one with: pocketune delta save {run} --out FILE",
    "delta file": "give a file that pocketune delta save has written",
    "evaluate photos": "give PHOTOS to evaluate",
    "name photos": "give PHOTOS to evaluate, or --photos to export",
    "normalization": "or give --normalization to kit build or train, such as half",
    "measure norms": "name photos to measure them on with --photos",
    "new folder": "choose another folder with --out",
    "calibrate": "give more photos to calibrate it on with --photos, or export it with --float32 "
    "or, for ONNX, --fp16",
    "train further": "train it further with --kit {run}",
    "start over": "the same command starts it again",
    "resume": "resume with: pocketune train --resume {run}",
}
"""What to do on the command line, by the key of a `Remedy`."""


def message_of(error: PocketuneError) -> str:
    """The message of an error, with its remedy worded for the command line."""
    from pocketune.kit.bundled import bundled_kit, list_kits

    message = error.message
    if error.remedy is not None:
        values = {name: shlex.quote(str(value)) for name, value in error.remedy.values.items()}
        message += f"; {REMEDIES[error.remedy.key].format(**values)}"
    for name in list_kits():
        message = message.replace(str(bundled_kit(name)), name)
    return message


def name_options(
    error: PocketuneError, options: Sequence[OptionField], given: Iterable[object]
) -> None:
    """Name options in the message of an error as they are typed, in place.

    A name of several words is always that of an option. One of a single word is, before an equals
    sign or at the beginning.

    Args:
        error: The error of the library, which names Python's arguments.
        options: The options of the command that failed.
        given: Their values. A path among them, such as `lr=0.1`, stays as it is.
    """
    paths = [str(Path(each)) for each in given if isinstance(each, (str, Path))]
    kept = "|".join(re.escape(path) for path in paths if _named(path, options) != path)
    pieces = re.split(f"({kept})", error.message) if kept else [error.message]
    pieces[::2] = [_named(piece, options) for piece in pieces[::2]]
    error.message = "".join(pieces)


def _named(text: str, options: Iterable[OptionField]) -> str:
    """A text with its options as they are typed."""
    for each in options:
        shown, name = shown_name(each), rf"(?<![\w/.'-]){each.name}"
        value = r"=(?:'([^']*)'|([^\s,:;]+))"
        text = re.sub(name + value, partial(_typed, shown), text)
        if "_" in each.name:
            text = re.sub(rf"{name}(?![\w/.-])", shown, text)
        else:
            follows = r"(?= (?:must|has no effect|needs|and \S+ (?:must|are)) )"
            text = re.sub(rf"(?:^|(?<=[:;] )|(?<= and )){name}{follows}", shown, text)
    return text


def _typed(shown: str, found: re.Match[str]) -> str:
    """An option and its value; a flag has none, and is left out where it is False."""
    value = found[1] if found[1] is not None else found[2]
    return {"True": shown, "False": f"no {shown}"}.get(value, f"{shown} {value}")


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
