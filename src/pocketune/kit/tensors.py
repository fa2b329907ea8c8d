"""Tensors with metadata in one safetensors file that is replaced whole or not at all."""

from __future__ import annotations

import hashlib
import io
import json
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from safetensors import SafetensorError, deserialize, safe_open

from pocketune.errors import PocketuneError
from pocketune.files import ARCHIVE_DAMAGE, reading, regular, replacing
from pocketune.kit.packed import Packed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from pocketune.arrays import State
    from pocketune.kit.packed import RunFile

_METADATA_KEY, _CHECKSUM_KEY = "pocketune", "sha256"
SCHEMA = 2
_CHUNK = 1 << 16
_TYPES = {"float32": "F32", "int8": "I8", "uint8": "U8"}
_FLOATS = ("F32",)


def write_tensors(
    path: Path, tensors: Mapping[str, NDArray[Any]], *, kind: str, metadata: dict[str, Any]
) -> None:
    """Write tensors of float32, int8 or uint8 to `path`, atomically and durably.

    Tensors are written from their own memory, without a copy. The header holds a checksum of
    everything else, which every reader compares.

    Args:
        path: The file to write or replace.
        tensors: The tensors by name.
        kind: Kind of the file, such as `checkpoint`; `read_tensors` checks it.
        metadata: A JSON object for the file's header.

    Raises:
        PocketuneError: The file cannot be written; what was at `path` is unchanged.
    """
    with replacing(path) as partial, partial.open("wb") as file:
        _write(file, tensors, {"kind": kind, "schema": SCHEMA, **metadata})


def read_tensors(
    path: RunFile, *, kind: str, codes: bool = False, only: Collection[str] | None = None
) -> tuple[State, dict[str, Any]]:
    """Read a file of `write_tensors`: its tensors and its metadata.

    Args:
        path: The file.
        kind: Kind of the file.
        codes: Accept tensors of int8 and uint8 as well.
        only: Names of the tensors that are wanted; None for all. Of a file in a .zip, which is
            unpacked as a whole, all are given.

    Raises:
        PocketuneError: The file is missing, unreadable, damaged or of another kind, or a value is
            not finite.
    """
    types = tuple(_TYPES.values()) if codes else _FLOATS
    if isinstance(path, Packed):
        with reading(path, SafetensorError, *ARCHIVE_DAMAGE, ValueError, KeyError):
            return _unpacked(path, kind, types)
    with reading(path, SafetensorError, ValueError):
        names, metadata = _read_metadata(path, kind)
        wanted = [name for name in names if only is None or name in only]
        return {name: _read_one(path, name, types) for name in wanted}, metadata


def copy_tensors(path: Path, arrays: Mapping[str, NDArray[np.float32]], *, kind: str) -> None:
    """Copy tensors of a file of `write_tensors` into arrays, one after the other.

    Args:
        path: The file.
        arrays: Where each of these tensors goes.
        kind: Kind of the file.

    Raises:
        PocketuneError: The file is missing, unreadable, damaged or of another kind, a value is not
            finite, or a tensor is missing or of another shape. Then nothing is copied, unless it
            is for a value or a shape.
    """
    with reading(path, SafetensorError, ValueError):
        _read_metadata(path, kind)
        for name, array in arrays.items():
            tensor = _read_one(path, name)
            if tensor.shape != array.shape:
                raise ValueError(f"its tensor {name} is of shape {tensor.shape}, not {array.shape}")
            np.copyto(array, tensor)


def _read_metadata(path: Path, kind: str) -> tuple[list[str], dict[str, Any]]:
    """The names of all tensors, and the metadata."""
    with regular(path).open("rb"):  # what forbids it is said here, and below that it is missing
        pass
    with safe_open(path, framework="numpy") as file:  # which refuses a damaged header
        names = list(file.keys())
    with path.open("rb") as stream:
        return names, _checked_metadata(stream, path, kind)


def _unpacked(file: Packed, kind: str, types: tuple[str, ...]) -> tuple[State, dict[str, Any]]:
    """The tensors and metadata of a file in a .zip, which cannot be mapped."""
    content = file.read_bytes()
    found = deserialize(content)  # type: ignore[no-untyped-call]
    with io.BytesIO(content) as stream:
        metadata = _checked_metadata(stream, file, kind)
    return {name: _array(name, tensor, types) for name, tensor in found}, metadata


def _checked_metadata(file: BinaryIO, path: RunFile, kind: str) -> dict[str, Any]:
    """The metadata of a file of a kind, whose content is compared with its checksum.

    The file is read in pieces, not mapped: mapped pages would count as memory of the process.
    """
    header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    stored = header.get("__metadata__") or {}
    metadata: dict[str, Any] = json.loads(stored.get(_METADATA_KEY) or "{}")
    _require_kind(path, metadata, kind)
    written = stored.pop(_CHECKSUM_KEY, None)
    digest = _started(header)
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    if digest.hexdigest() != written:
        raise ValueError("its content is not what was written (wrong SHA-256)")
    return metadata


def _array(name: str, tensor: dict[str, Any], types: tuple[str, ...]) -> NDArray[Any]:
    kind = tensor["dtype"]
    _require_type(name, kind, types)
    dtype = next(dtype for dtype, code in _TYPES.items() if code == kind)
    array: NDArray[Any] = np.frombuffer(tensor["data"], dtype).reshape(tensor["shape"])
    _require_finite(name, array)
    return array


def _require_kind(path: RunFile, metadata: Any, kind: str) -> None:
    if not isinstance(metadata, dict) or metadata.get("kind") != kind:
        raise PocketuneError(f"{path} is a safetensors file, but not a Pocketune {kind}")
    if metadata.get("schema") != SCHEMA:
        raise PocketuneError(
            f"{path} has schema {metadata.get('schema')} and this version of Pocketune reads "
            f"{SCHEMA}: use the version that wrote it"
        )


def _started(header: dict[str, Any]) -> hashlib._Hash:
    """The checksum of a header without a checksum; that of the data follows."""
    return hashlib.sha256(json.dumps(header).encode())


def _read_one(path: Path, name: str, types: tuple[str, ...] = _FLOATS) -> NDArray[Any]:
    # The file is mapped again for each tensor: all pages of one mapping would stay resident, so
    # that reading would take twice the file's size.
    with safe_open(path, framework="numpy") as file:
        kind = file.get_slice(name).get_dtype()
        _require_type(name, kind, types)
        tensor: NDArray[Any] = file.get_tensor(name)
    _require_finite(name, tensor)
    return tensor


def _require_type(name: str, kind: str, types: tuple[str, ...]) -> None:
    if kind not in types:
        raise ValueError(f"its tensor {name} is {kind} where F32 is expected")


def _require_finite(name: str, tensor: NDArray[Any]) -> None:
    if not np.isfinite(tensor).all():
        raise ValueError(f"its tensor {name} has a value that is not finite")


def _write(file: BinaryIO, tensors: Mapping[str, NDArray[Any]], metadata: Any) -> None:
    # Not safetensors' `save_file`, which first writes to a file of a random name: a process that
    # is killed in between would leave that file in the run folder for good.
    header: dict[str, Any] = {"__metadata__": {_METADATA_KEY: json.dumps(metadata)}}
    end = 0
    for name, tensor in tensors.items():
        if str(tensor.dtype) not in _TYPES:
            raise TypeError(f"tensor {name} is {tensor.dtype}, not float32, int8 or uint8")
        start, end = end, end + tensor.nbytes
        dtype = _TYPES[str(tensor.dtype)]
        header[name] = {"dtype": dtype, "shape": tensor.shape, "data_offsets": (start, end)}
    digest = _started(header)
    for tensor in tensors.values():
        digest.update(_bytes(tensor))
    header["__metadata__"][_CHECKSUM_KEY] = digest.hexdigest()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little"))
    file.write(text)
    for tensor in tensors.values():
        file.write(_bytes(tensor))


def _bytes(tensor: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(tensor).reshape(-1).view(np.uint8).data
