"""Weights that are published for download."""

from pathlib import Path
from urllib.error import URLError

import torch
from torch import Tensor

from pocketune.errors import PocketuneError
from pocketune.networks.config import NetworkConfig
from pocketune.weights.published import PUBLISHED

ADDRESS = "https://download.pytorch.org/models/"
FILES = {name: found.file for name, found in PUBLISHED.items() if found.file is not None}


def require_published(
    name: str, *, width: float, padding: str, feature_fusion: bool, depth: float
) -> None:
    """Check that ImageNet weights of a network are published, and of this shape.

    Raises:
        PocketuneError: They are not.
    """
    known = PUBLISHED.get(name)
    if known is None or (known.file or known.hub) is None:
        raise PocketuneError(
            f"neither torchvision nor timm publishes ImageNet weights of {name}; "
            "give a file, or weights=None for random ones"
        )
    if (width, padding, feature_fusion, depth) != (1.0, "symmetric", True, 1.0):
        raise PocketuneError(
            f"the published ImageNet weights of {name} have width 1, depth 1, symmetric "
            "padding and the feature fusion layer; leave these options out, or give your own file"
        )


def download(config: NetworkConfig) -> dict[str, Tensor]:
    """State dict of the published weights, from the cache of `torch.hub` if present.

    Raises:
        PocketuneError: None are published, the download fails, or the file is damaged.
    """
    require_published(
        config.name,
        width=config.width,
        padding=config.padding,
        feature_fusion=config.feature_fusion,
        depth=config.depth,
    )
    url = ADDRESS + FILES[config.name]
    try:
        state: dict[str, Tensor] = torch.hub.load_state_dict_from_url(
            url, map_location="cpu", check_hash=True, weights_only=True
        )
    except (URLError, OSError) as error:
        raise PocketuneError(
            f"{url} could not be downloaded ({error}); connect to the internet, or give the "
            "file itself as weights, or use a bundled kit, which needs no download"
        ) from None  # the causes take a page, and the sentence names them
    except Exception as error:  # a damaged pickle raises nearly anything
        cached = Path(torch.hub.get_dir()) / "checkpoints" / FILES[config.name]
        if cached.exists():  # its hash was checked as it was downloaded, and not since
            raise PocketuneError(f"{cached} is damaged; remove it and try again") from error
        raise PocketuneError(f"the download of {url} was damaged; try again") from error
    return state
