"""Reading tensors from a weights file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from pocketune.errors import PocketuneError

WRAPPERS = ("state_dict", "model", "model_state_dict")  # names that training scripts save under


def read_state(path: Path) -> dict[str, Tensor]:
    """State dict in a `.safetensors` or `.pth` / `.pt` file; no code in it is ever run.

    Raises:
        PocketuneError: for a missing, unknown or damaged file, or one that holds no tensors.
    """
    if not path.is_file():
        raise PocketuneError(
            f"there is no weights file {path}; give 'imagenet' or a .safetensors, .pth or .npz file"
        )
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    if path.suffix in (".pth", ".pt"):
        return _read_pickle(path)
    raise PocketuneError(f"{path} is none of a .safetensors, .pth or .npz file")


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise PocketuneError(f"{path} is no readable safetensors file: {error}") from error


def _read_pickle(path: Path) -> dict[str, Tensor]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # what is no pickle, or a damaged one, raises nearly anything
        raise PocketuneError(
            f"{path} is no readable state dict of tensors alone; "
            "save it again with torch.save(model.state_dict(), ...)"
        ) from error
    return unwrap(content, str(path))


def unwrap(content: Any, source: str) -> dict[str, Tensor]:
    """The state dict itself, out of what training scripts wrap around it.

    Raises:
        PocketuneError: naming `source`, where there is none.
    """
    if isinstance(content, Mapping):
        for name in WRAPPERS:
            if isinstance(content.get(name), Mapping):
                return unwrap(content[name], source)
        if content and all(
            isinstance(k, str) and isinstance(v, Tensor) for k, v in content.items()
        ):
            return {name.removeprefix("module."): value for name, value in content.items()}
    raise PocketuneError(f"{source} holds no state dict, which maps names to tensors")
