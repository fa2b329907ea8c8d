"""Which files the result of a model may replace."""

import os
from pathlib import Path
from typing import NamedTuple

from pocketune.errors import PocketuneError
from pocketune.files import reading, refuse_undecodable
from pocketune.kit.names import RUN_FILES


class Kind(NamedTuple):
    """A kind of file: its name in messages, and what is in its first bytes."""

    name: str
    sign: bytes


EXPORTED = Kind("an exported model", b"\x12\tpocketune")  # the producer
ADAPTER = Kind("an adapter", b"TORT")  # the identifier of its flatbuffer
_START = 100
"""Bytes of a file that its sign is looked for in."""


def refuse_to_overwrite(model: Path, out: Path, kind: Kind | None = None) -> None:
    """Check that a file to write is not a kit or a file of it, and replaces only one of its kind.

    Raises:
        PocketuneError: It is; its name cannot be opened by the runtime, which checks it; or there
            is a file of another kind, such as the network that the kit was made of.
    """
    refuse_undecodable(out)
    if out.resolve() in {model.resolve(), *(model.resolve() / name for name in RUN_FILES)}:
        raise PocketuneError(
            f"{out} is the run or kit itself, or a file in it: choose another file"
        )
    if kind is None or not os.path.isfile(out):  # noqa: PTH113 - never fails
        return
    with reading(out), out.open("rb") as file:
        start = file.read(_START)
    if start and kind.sign not in start:
        raise PocketuneError(f"{out} exists and is not {kind.name}: choose another name")
