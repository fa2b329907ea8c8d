"""Once-for-all supernets: the space of sub-networks, and the weights that they share."""

from pocketune.supernet.config import SubnetConfig
from pocketune.supernet.files import load_supernet, save_supernet
from pocketune.supernet.pretrained import pretrained_config
from pocketune.supernet.space import Space
from pocketune.supernet.supernet import Supernet

SupernetSpace = Space
"""Its name in `pocketune`."""

__all__ = [
    "Space",
    "SubnetConfig",
    "Supernet",
    "SupernetSpace",
    "load_supernet",
    "pretrained_config",
    "save_supernet",
]
