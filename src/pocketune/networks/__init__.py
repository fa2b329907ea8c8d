"""Networks: architectures (one file each), pretrained weights, and their anatomy."""

# Importing an architecture registers it.
from pocketune.networks import mcunet as mcunet
from pocketune.networks import mobilenet_v2 as mobilenet_v2
from pocketune.networks import mobilenet_v3 as mobilenet_v3
from pocketune.networks import proxylessnas as proxylessnas
from pocketune.networks import resnet as resnet
from pocketune.networks.anatomy import Anatomy, anatomy
from pocketune.networks.batch_norm import restore_batch_norm
from pocketune.networks.blocks import Block, Layer
from pocketune.networks.config import NetworkConfig
from pocketune.networks.create import create_network, load_network
from pocketune.networks.normalization import Normalization, normalize
from pocketune.networks.recorded import save_network
from pocketune.networks.registry import list_networks, register_network
from pocketune.networks.samples import sample_batches

__all__ = [
    "Anatomy",
    "Block",
    "Layer",
    "NetworkConfig",
    "Normalization",
    "anatomy",
    "create_network",
    "list_networks",
    "load_network",
    "normalize",
    "register_network",
    "restore_batch_norm",
    "sample_batches",
    "save_network",
]
