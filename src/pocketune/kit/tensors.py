"""Tensors with metadata in one safetensors file that is replaced whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from safetensors import SafetensorError, safe_open

from pocketune.errors import PocketuneError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from pocketune.arrays import State

_METADATA_KEY = "pocketune"
_SCHEMA = 1


def write_tensors(
    path: Path, tensors: Mapping[str, NDArray[np.float32]], *, kind: str, metadata: dict[str, Any]
) -> None:
    """Write float32 tensors to ``path``, atomically and durably.

    The file is written under a temporary name in the same folder, flushed to the disk, and then
    renamed over ``path``: whatever happens, ``path`` is the old file or the new one. Tensors go
    from their own memory to the file; nothing is copied.

    Args:
        path: The file to write or replace.
        tensors: What to store, by name.
        kind: What the file is, such as ``checkpoint``; reading asks for it again.
        metadata: A JSON object, kept in the file's header.

    Raises:
        PocketuneError: The file cannot be written; what was at ``path`` is as it was.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("wb") as file:
            _write(file, tensors, {"kind": kind, "schema": _SCHEMA, **metadata})
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        kept = "; the one saved before is intact" if path.exists() else ""
        reason = error.strerror or error
        raise PocketuneError(f"could not save {path}: {reason}{kept}") from error


def read_tensors(path: Path, *, kind: str) -> tuple[State, dict[str, Any]]:
    """Read a file of :func:`write_tensors`: its tensors and its metadata.

    Raises:
        PocketuneError: The file is missing, unreadable, damaged or of another kind.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            names = list(file.keys())
            stored = (file.metadata() or {}).get(_METADATA_KEY)
        metadata = json.loads(stored or "{}")
        _require_kind(path, metadata, kind)
        return {name: _read_one(path, name) for name in names}, metadata
    except FileNotFoundError as error:
        raise PocketuneError(f"there is no file {path}") from error
    except OSError as error:
        raise PocketuneError(f"cannot read {path}: {error.strerror or error}") from error
    except (SafetensorError, ValueError) as error:
        raise PocketuneError(
            f"{path} is truncated, damaged or not a safetensors file ({error})"
        ) from error


def _require_kind(path: Path, metadata: Any, kind: str) -> None:
    if not isinstance(metadata, dict) or metadata.get("kind") != kind:
        raise PocketuneError(f"{path} is a safetensors file, but not a Pocketune {kind}")
    if metadata.get("schema") != _SCHEMA:
        raise PocketuneError(
            f"{path} has schema {metadata.get('schema')} and this version of Pocketune reads "
            f"{_SCHEMA}: use the version that wrote it"
        )


def _read_one(path: Path, name: str) -> NDArray[np.float32]:
    # The file is mapped anew for each tensor: pages of one mapping would all stay resident and
    # take the process to twice the file's size.
    with safe_open(path, framework="numpy") as file:
        tensor: NDArray[np.float32] = file.get_tensor(name)
    return tensor


def _write(file: BinaryIO, tensors: Mapping[str, NDArray[np.float32]], metadata: Any) -> None:
    header: dict[str, Any] = {"__metadata__": {_METADATA_KEY: json.dumps(metadata)}}
    end = 0
    for name, tensor in tensors.items():
        if tensor.dtype != np.float32:
            raise TypeError(f"tensor {name} is {tensor.dtype}, not float32")
        start, end = end, end + tensor.nbytes
        header[name] = {"dtype": "F32", "shape": tensor.shape, "data_offsets": (start, end)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little"))
    file.write(text)
    for tensor in tensors.values():
        if tensor.size:
            file.write(np.ascontiguousarray(tensor).reshape(-1).view(np.uint8).data)


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut; Windows has no such call and does not need it."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
