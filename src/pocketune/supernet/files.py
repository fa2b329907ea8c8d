"""Saved supernets: safetensors files whose header describes the space."""

import json
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from pocketune.errors import PocketuneError, Remedy, check_type
from pocketune.files import reading
from pocketune.networks import Normalization, about
from pocketune.supernet.space import Space
from pocketune.supernet.supernet import Supernet
from pocketune.weights.formats.files import check_writable, write_state

HEADER = "pocketune.supernet"
VERSION = 1
_REMEDY = Remedy("supernet", "give a file of save_supernet")


def save_supernet(supernet: Supernet, path: str | PathLike[str]) -> None:
    """Write a supernet: its values, its space and the normalization of its images.

    Raises:
        PocketuneError: It is not a supernet, or the file cannot be written or does not end in
            `.safetensors`.
    """
    check_type(Supernet, supernet=supernet)
    path = Path(path)
    check_saveable(path)
    write_state(path, supernet.state_dict(), HEADER, describe(supernet))


def check_saveable(path: Path) -> None:
    """Raise as `save_supernet` would, before long work.

    It makes the file's folder if there is none.

    Raises:
        PocketuneError: As `save_supernet` does.
    """
    if path.suffix != ".safetensors":
        raise PocketuneError(f"{path} must end in .safetensors")
    check_writable(path)


def describe(supernet: Supernet) -> dict[str, Any]:
    """What the header of the file says: the version, the space and the normalization."""
    return {
        "version": VERSION,
        "space": supernet.space.to_dict(),
        "normalization": asdict(about(supernet).normalization),
    }


def load_supernet(path: str | PathLike[str], space: Space | None = None) -> Supernet:
    """The supernet in a file of `save_supernet`, in training mode.

    Args:
        path: The file.
        space: The space that it must have; None takes any.

    Raises:
        PocketuneError: The file is missing, damaged or not a supernet, or it is of another version
            or space.
    """
    path = Path(path)
    own, normalization = _read_space(path)
    if space is not None and own != space:
        differing = next(k for k, v in own.to_dict().items() if v != space.to_dict()[k])
        raise PocketuneError(
            f"{path} holds a supernet of another space, with {differing}="
            f"{getattr(own, differing)!r} in place of {getattr(space, differing)!r}; give one of "
            "this space"
        )
    with torch.device("meta"):
        supernet = Supernet(own, normalization)
    with reading(path, SafetensorError):
        tensors = load_file(path)
    try:
        supernet.load_state_dict(tensors, assign=True)
    except RuntimeError as error:
        raise PocketuneError(
            f"{path} does not hold the values of its space; save the supernet again"
        ) from error
    return supernet


def _read_space(path: Path) -> tuple[Space, Normalization]:
    """The space and the normalization in the header of a file.

    Raises:
        PocketuneError: The file is missing, damaged or not a supernet, or of another version.
    """
    if not path.is_file():
        raise PocketuneError(f"there is no supernet {path}", remedy=_REMEDY)
    with reading(path, SafetensorError), safe_open(path, "pt") as file:
        text = (file.metadata() or {}).get(HEADER)
    if text is None:
        raise PocketuneError(f"{path} is not a supernet", remedy=_REMEDY)
    with reading(f"the description in {path}", ValueError, KeyError, TypeError, AttributeError):
        facts = json.loads(text)
        version, space = facts["version"], facts["space"]
        mean, std = (tuple(facts["normalization"][key]) for key in ("mean", "std"))
    if version != VERSION:
        raise PocketuneError(
            f"{path} holds a supernet of version {version!r}, and this program reads version "
            f"{VERSION}; save it again with this program"
        )
    return Space.from_dict(space), Normalization(mean, std)
