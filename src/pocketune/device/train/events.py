"""Event files, which TensorBoard shows while a run trains.

They are written here, because no library does it in the memory of a small device: in a training
process, the writer of `tensorboard` takes 11 MB and that of `tensorboardX` 4 MB, or 197 MB
where PyTorch is installed, which it imports. The format is that of TensorFlow: records with
checksums (`tensorflow/core/lib/io/record_writer.h`) that hold the protobuf messages of
`tensorflow/core/util/event.proto`.
"""

from __future__ import annotations

import math
import struct
import time
from itertools import count
from typing import TYPE_CHECKING, Any

from pocketune.files import write_all, writing
from pocketune.kit.names import EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_VALIDATION = "validation_"
_NOT_SHOWN = frozenset({"step", "epoch", "elapsed", "best"})
_DOUBLE, _BYTES, _FLOAT = 1, 2, 5
"""Wire types of protobuf; that of whole numbers is 0."""
_START = 1
"""`SessionLog.START`: events of this and later steps in earlier files do not count."""


class EventFile:
    """Appends the numbers of a run to an event file of its own process.

    Args:
        folder: The run folder.
        step: The first step that will be written. Events of this and later steps that an earlier
            process wrote, before it was killed, no longer count.

    Raises:
        PocketuneError: The file cannot be written.
    """

    def __init__(self, folder: Path, step: int = 0) -> None:
        names = (folder / f"{EVENTS}{number:05}.pocketune" for number in count())
        self.path = next(path for path in names if not path.exists())
        with writing(self.path):
            self._file = self.path.open("xb", buffering=0)
        self._append(_field(3, "brain.Event:2"))
        self._append(_field(2, step) + _field(7, _field(1, _START)))

    def write(self, kind: str, **values: Any) -> None:
        """Append the numbers of a step or an epoch; see `MetricsFile.write`.

        Training values of an epoch are left out, because the steps have them.

        Raises:
            PocketuneError: The disk is full, or the file cannot be written.
        """
        if kind not in ("step", "epoch"):
            return
        shown = [
            _field(1, _field(1, _tag(name)) + _field(2, float(value), _FLOAT))
            for name, value in values.items()
            if _is_shown(kind, name, value)
        ]
        if shown:
            self._append(_field(2, int(values["step"])) + _field(5, b"".join(shown)))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _append(self, event: bytes) -> None:
        data = _field(1, time.time(), _DOUBLE) + event
        length = struct.pack("<Q", len(data))
        record = length + _checksum(length) + data + _checksum(data)
        with writing(self.path):
            write_all(self._file, record)


def _is_shown(kind: str, name: str, value: object) -> bool:
    is_number = isinstance(value, (int, float)) and math.isfinite(value)
    belongs = name.startswith(_VALIDATION) if kind == "epoch" else name not in _NOT_SHOWN
    return is_number and belongs


def _tag(name: str) -> str:
    """The name of a curve; TensorBoard groups curves by the part before the slash."""
    if name.startswith(_VALIDATION):
        return f"{name.removeprefix(_VALIDATION)}/validation"
    if name in ("lr", "gradient_norm", "images_per_second", "seconds", "memory"):
        return f"step/{name}"
    return f"{name}/training"


def _field(number: int, value: float | str | bytes, kind: int = 0) -> bytes:
    """A field of a protobuf message."""
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return _varint(number << 3 | _BYTES) + _varint(len(value)) + value
    key = _varint(number << 3 | kind)
    if kind == _DOUBLE:
        return key + struct.pack("<d", value)
    return key + (struct.pack("<f", value) if kind == _FLOAT else _varint(int(value)))


def _varint(value: int) -> bytes:
    """A whole number, seven bits a byte."""
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


def _checksum(data: bytes) -> bytes:
    """CRC-32C (Castagnoli), rotated and shifted as TensorFlow stores it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 255] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    rotated = (crc >> 15 | crc << 17) & 0xFFFFFFFF
    return struct.pack("<I", (rotated + 0xA282EAD8) & 0xFFFFFFFF)


def _castagnoli() -> Iterator[int]:
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        yield value


_TABLE = tuple(_castagnoli())
