"""Weights that are published for download."""

from urllib.error import URLError

import torch
from torch import Tensor

from pocketune.errors import PocketuneError
from pocketune.networks.config import NetworkConfig

ADDRESS = "https://download.pytorch.org/models/"
# Each name ends in the first digits of the file's SHA-256, which the download is checked against.
# These are the weights of the papers' recipes ("IMAGENET1K_V1").
FILES = {
    "mobilenet_v2": "mobilenet_v2-b0353104.pth",
    "mobilenet_v3_small": "mobilenet_v3_small-047dcff4.pth",
    "mobilenet_v3_large": "mobilenet_v3_large-8738ca79.pth",
    "resnet18": "resnet18-f37072fd.pth",
    "resnet34": "resnet34-b627a593.pth",
    "resnet50": "resnet50-0676ba61.pth",
    "resnet101": "resnet101-63fe2227.pth",
}


def download(config: NetworkConfig) -> dict[str, Tensor]:
    """State dict of the published weights, from the cache of `torch.hub` if present.

    Raises:
        PocketuneError: none are published, or the download fails or is damaged.
    """
    if config.name not in FILES:
        raise PocketuneError(
            f"neither torchvision nor timm publishes ImageNet weights of {config.name}; "
            "give a file, or weights=None for random ones"
        )
    if (config.width, config.padding, config.feature_fusion) != (1.0, "symmetric", True):
        raise PocketuneError(
            f"the published ImageNet weights of {config.name} have width 1, symmetric "
            "padding and the feature fusion layer; leave these options out, or give your own file"
        )
    url = ADDRESS + FILES[config.name]
    try:
        state: dict[str, Tensor] = torch.hub.load_state_dict_from_url(
            url, map_location="cpu", check_hash=True, weights_only=True
        )
    except (URLError, OSError) as error:
        raise PocketuneError(
            f"{url} could not be downloaded ({error}); connect to the internet, or give the "
            "file itself as weights"
        ) from error
    except RuntimeError as error:
        raise PocketuneError(f"the download of {url} was damaged; try again") from error
    return state
