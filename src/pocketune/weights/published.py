"""The weights that others publish for our networks: where they are, and their license."""

from dataclasses import dataclass

from pocketune.networks.about import Normalization


@dataclass(frozen=True)
class Published:
    """Weights trained on ImageNet.

    Attributes:
        source: Who publishes them.
        license: Their license, as the publisher names it.
        file: Name of the file in torchvision's folder of downloads.
        hub: Owner and name of the repository on the Hugging Face hub.
        normalization: Of the images that they were trained with.
    """

    source: str
    license: str
    file: str | None = None
    hub: str | None = None
    normalization: Normalization = Normalization.IMAGENET


def _torchvision(file: str) -> Published:
    """The end of a file's name is the start of its SHA-256, which the download is checked against.

    These are the weights of the papers' recipes ("IMAGENET1K_V1").
    """
    return Published("torchvision", "BSD-3-Clause", file=file)


def _timm(
    name: str,
    license: str = "Apache-2.0",
    normalization: Normalization = Normalization.IMAGENET,
) -> Published:
    return Published("timm", license, hub=f"timm/{name}", normalization=normalization)


_TINY = Published("tiny-training, as a file", "MIT")

PUBLISHED = {
    "mobilenet_v2": _torchvision("mobilenet_v2-b0353104.pth"),
    "mobilenet_v3_small": _torchvision("mobilenet_v3_small-047dcff4.pth"),
    "mobilenet_v3_large": _torchvision("mobilenet_v3_large-8738ca79.pth"),
    "resnet18": _torchvision("resnet18-f37072fd.pth"),
    "resnet34": _torchvision("resnet34-b627a593.pth"),
    "resnet50": _torchvision("resnet50-0676ba61.pth"),
    "resnet101": _torchvision("resnet101-63fe2227.pth"),
    "efficientnet_b0": _torchvision("efficientnet_b0_rwightman-7f5810bc.pth"),
    "efficientnet_v2_s": _torchvision("efficientnet_v2_s-dd5fe13b.pth"),
    "efficientnet_lite0": _timm("efficientnet_lite0.ra_in1k"),
    "mobilenet_v4_small": _timm("mobilenetv4_conv_small.e2400_r224_in1k"),
    "convnext_atto": _timm("convnext_atto.d2_in1k"),
    "vit_tiny": _timm(
        "vit_tiny_patch16_224.augreg_in21k_ft_in1k", normalization=Normalization.HALF
    ),
    "deit_tiny": _timm("deit_tiny_patch16_224.fb_in1k"),
    "mobilevit_xxs": _timm(
        "mobilevit_xxs.cvnets_in1k",
        "Apple's of CVNets",
        Normalization.UNIT,
    ),
    "repvit_m0_9": _timm("repvit_m0_9.dist_300e_in1k"),
    "fastvit_t8": _timm("fastvit_t8.apple_in1k", "Apple's of FastViT"),
    "mcunet_5fps": _TINY,
    "proxylessnas_mobile": _TINY,
}
"""By the name of the network."""


def usual_normalization(network: str) -> Normalization:
    """That of the published weights; ImageNet's for a network without any."""
    published = PUBLISHED.get(network)
    return Normalization.IMAGENET if published is None else published.normalization
