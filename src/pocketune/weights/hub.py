"""Weights from the Hugging Face hub, as timm publishes them."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard
from urllib.error import HTTPError, URLError

import torch
from safetensors import SafetensorError, safe_open

from pocketune.errors import PocketuneError
from pocketune.files import reading
from pocketune.networks.about import Normalization

HUB = "hf-hub:"
"""What the name of a repository begins with where a file could stand too, as in timm."""
WEIGHTS = "model.safetensors"
DESCRIPTION = "config.json"
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


def is_hub(weights: Any) -> TypeGuard[str]:
    """Whether weights are named as a repository of the hub."""
    return isinstance(weights, str) and weights.startswith(HUB)


def fetch(weights: str) -> Path:
    """The file of weights of a repository such as `hf-hub:timm/convnext_atto.d2_in1k`.

    It is downloaded once, with its description, into a folder of `torch.hub`. `HF_ENDPOINT` is the
    address of another hub.

    Raises:
        PocketuneError: There is no such repository, it has no `model.safetensors`, or the download
            fails or is damaged.
    """
    repository = weights.removeprefix(HUB)
    if not REPOSITORY.fullmatch(repository):
        raise PocketuneError(
            f"weights={weights!r} is not understood; name a repository of the hub as "
            f"{HUB}OWNER/NAME"
        )
    folder = Path(torch.hub.get_dir()) / "checkpoints" / "hf-hub" / repository
    file = folder / WEIGHTS
    if not file.is_file():
        with reading(folder):
            folder.mkdir(parents=True, exist_ok=True)
        _download(repository, DESCRIPTION, folder)
        _download(repository, WEIGHTS, folder)
        _check(file, repository)
    return file


def described_normalization(file: Path) -> Normalization | None:
    """The normalization in the `config.json` beside a file of weights; None without it.

    Raises:
        PocketuneError: The description is damaged.
    """
    path = file.parent / DESCRIPTION
    if not path.is_file():
        return None
    with reading(path, ValueError):
        facts = json.loads(path.read_text(encoding="utf-8"))
    facts = facts.get("pretrained_cfg", facts) if isinstance(facts, Mapping) else {}
    if not {"mean", "std"} <= set(facts):
        return None
    with reading(path, TypeError, ValueError):
        mean, std = ((float(r), float(g), float(b)) for r, g, b in (facts["mean"], facts["std"]))
    return Normalization(mean, std)


def _download(repository: str, name: str, folder: Path) -> None:
    hub = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    url = f"{hub}/{repository}/resolve/main/{name}"
    try:
        torch.hub.download_url_to_file(url, str(folder / name), progress=name == WEIGHTS)
    except HTTPError as error:
        raise PocketuneError(
            f"the hub has no {name} of {repository} ({error}); check the name, or give a file"
        ) from error
    except (URLError, OSError) as error:
        raise PocketuneError(
            f"{url} could not be downloaded ({error}); connect to the internet, or give the "
            "file itself as weights, or use a bundled kit, which needs no download"
        ) from error


def _check(file: Path, repository: str) -> None:
    """A file of safetensors says how long it is, so that a broken download shows."""
    try:
        with safe_open(file, "pt"):
            pass
    except SafetensorError as error:
        file.unlink()
        raise PocketuneError(f"the download of {repository} was damaged; try again") from error
