"""Networks by name."""

import fnmatch
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from torch import nn

from pocketune.errors import PocketuneError
from pocketune.extensions import import_extension, import_extensions
from pocketune.networks.config import NetworkConfig

Builder = Callable[[NetworkConfig], nn.Module]


@dataclass(frozen=True)
class Dense:
    """The published options of a network that classifies pixels.

    Attributes:
        backbone: Name of the network in front of the decode head.
        head_channels: Channels of the decode head.
        output_stride: Side of the image over the side of the backbone's last map.
        of_backbone: Other output strides, by the name of the backbone.
    """

    backbone: str
    head_channels: int
    output_stride: int
    of_backbone: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Entry:
    """What `register_network` was given."""

    builder: Builder
    dense: Dense | None
    has_subnets: bool
    has_depth: bool
    has_stages: bool


_networks: dict[str, _Entry] = {}


def register_network(
    name: str,
    *,
    dense: Dense | None = None,
    has_subnets: bool = False,
    has_depth: bool = False,
    has_stages: bool = True,
) -> Callable[[Builder], Builder]:
    """Decorator: `builder(config)` makes the network called `name`, randomly initialized.

    Args:
        name: The name for `create_network`.
        dense: The published options of a network that classifies pixels.
        has_subnets: Whether `config.subnet` chooses one of its many sub-networks.
        has_depth: Whether `config.depth` changes the number of its blocks.
        has_stages: Whether it can be the backbone of a network that classifies pixels.

    Raises:
        ValueError: A network of that name is registered already.
    """

    def register(builder: Builder) -> Builder:
        if name in _networks:
            raise ValueError(f"two networks are called {name}")
        _networks[name] = _Entry(builder, dense, has_subnets, has_depth, has_stages)
        return builder

    return register


def list_networks(pattern: str = "*", *, dense: bool | None = None) -> list[str]:
    """Sorted names for `create_network` that match a pattern such as `resnet*`.

    Args:
        pattern: What the names look like.
        dense: True for networks that classify pixels (segmentation), False for those that classify
            images, None for both.
    """
    import_extensions("networks")
    names = sorted(fnmatch.filter(_networks, pattern))
    return [name for name in names if dense in (None, is_dense(name))]


def list_backbones() -> list[str]:
    """Sorted names of the networks that can be the backbone of one that classifies pixels."""
    return [name for name in list_networks(dense=False) if _networks[name].has_stages]


def is_dense(name: str) -> bool:
    """Whether the network of this name classifies pixels; False for unknown names."""
    entry = _find(name)
    return entry is not None and entry.dense is not None


def published_classes(name: str) -> int:
    """Classes of the published weights: ImageNet's, or Pascal VOC's of pixels."""
    return 21 if is_dense(name) else 1000


def with_published_options(config: NetworkConfig) -> NetworkConfig:
    """The config with the published backbone, head channels and output stride for None.

    Raises:
        PocketuneError: The name is unknown, or these options are for other networks.
    """
    _require_known(config.name)
    searched = config.backbone or config.name
    entry = _find(searched)
    if config.subnet is not None and not (entry and entry.has_subnets):
        known = ", ".join(name for name in list_networks() if _networks[name].has_subnets)
        raise PocketuneError(
            f"{searched} has no sub-networks to choose from: subnet is an option of {known}"
        )
    if config.depth != 1 and not (entry and entry.has_depth):
        known = ", ".join(name for name in list_networks() if _networks[name].has_depth)
        raise PocketuneError(f"{searched} exists at depth 1 only: depth is an option of {known}")
    usual = _networks[config.name].dense
    if usual is None:
        if config.backbone is not None or config.head_channels is not None:
            raise PocketuneError(
                f"{config.name} classifies images and has no decode head: backbone and "
                f"head_channels are options of {', '.join(list_networks(dense=True))}"
            )
        if config.output_stride is not None and not _networks[config.name].has_stages:
            raise PocketuneError(
                f"{config.name} has no dilations: output_stride is an option of "
                f"{', '.join(list_backbones())}"
            )
        return config
    backbone = config.backbone or usual.backbone
    if backbone not in list_backbones():
        known = ", ".join(list_backbones())
        raise PocketuneError(f"there is no backbone {backbone!r}; choose from {known}")
    stride = usual.of_backbone.get(backbone, usual.output_stride)
    return replace(
        config,
        backbone=backbone,
        head_channels=config.head_channels or usual.head_channels,
        output_stride=config.output_stride or stride,
    )


def make_network(config: NetworkConfig) -> nn.Module:
    """The unpruned network of `config`, randomly initialized.

    It ignores `hidden`, `branches`, `norm` and `standardized`.

    Raises:
        PocketuneError: The name is unknown, or this network does not have an option.
    """
    complete = with_published_options(config)
    return _networks[config.name].builder(complete)


def _find(name: object) -> _Entry | None:
    if not isinstance(name, str):
        return None
    if name not in _networks:
        import_extension("networks", name)
    return _networks.get(name)


def _require_known(name: str) -> None:
    if _find(name) is None:
        if str(name).endswith(".onnx"):
            raise PocketuneError(
                f"{name} is an ONNX file, and networks go by name here: build a kit of it, or open "
                "it with load_onnx"
            )
        known = ", ".join(list_networks())
        raise PocketuneError(f"there is no network {name!r}; choose from {known}")
