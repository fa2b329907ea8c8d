"""Networks: architectures (one file each), their declared facts and their anatomy."""

# Importing an architecture registers it.
from pocketune.networks.about import About, Normalization, about, name_of, normalize, set_about
from pocketune.networks.anatomy.anatomy import Anatomy, anatomy
from pocketune.networks.anatomy.blocks import Block, Layer
from pocketune.networks.anatomy.modules import Factory
from pocketune.networks.architectures import convnext as convnext
from pocketune.networks.architectures import deeplabv3 as deeplabv3
from pocketune.networks.architectures import efficientnet as efficientnet
from pocketune.networks.architectures import efficientnet_lite as efficientnet_lite
from pocketune.networks.architectures import fastvit as fastvit
from pocketune.networks.architectures import fcn as fcn
from pocketune.networks.architectures import lraspp as lraspp
from pocketune.networks.architectures import mcunet as mcunet
from pocketune.networks.architectures import mobilenet_v2 as mobilenet_v2
from pocketune.networks.architectures import mobilenet_v3 as mobilenet_v3
from pocketune.networks.architectures import mobilenet_v4 as mobilenet_v4
from pocketune.networks.architectures import mobilevit as mobilevit
from pocketune.networks.architectures import ofa_mobilenet_v2 as ofa_mobilenet_v2
from pocketune.networks.architectures import proxylessnas as proxylessnas
from pocketune.networks.architectures import pspnet as pspnet
from pocketune.networks.architectures import repvit as repvit
from pocketune.networks.architectures import resnet as resnet
from pocketune.networks.architectures import torchvision_dense as torchvision_dense
from pocketune.networks.architectures import upernet as upernet
from pocketune.networks.architectures import vit as vit
from pocketune.networks.config import NetworkConfig
from pocketune.networks.registry import list_networks, register_network

__all__ = [
    "About",
    "Anatomy",
    "Block",
    "Factory",
    "Layer",
    "NetworkConfig",
    "Normalization",
    "about",
    "anatomy",
    "list_networks",
    "name_of",
    "normalize",
    "register_network",
    "set_about",
]
