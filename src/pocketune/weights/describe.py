"""The description of a network, completed from its weights."""

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pocketune.errors import PocketuneError, check_type
from pocketune.networks.about import Normalization, about, set_about
from pocketune.networks.architectures.backbone import stages_of
from pocketune.networks.architectures.dense import backbone_config
from pocketune.networks.config import PADDINGS, NetworkConfig
from pocketune.networks.registry import is_dense, make_network, with_published_options
from pocketune.surgery.truncate import truncate
from pocketune.weights.download import require_published
from pocketune.weights.formats.files import plain_name, read_state
from pocketune.weights.formats.folded import lacks_fusion
from pocketune.weights.formats.int8 import INT8, has_fusion
from pocketune.weights.hub import HUB, described_normalization, fetch, is_hub
from pocketune.weights.published import PUBLISHED
from pocketune.weights.saved import as_it_computes, build, read_description, require_same
from pocketune.weights.width import width_of

Weights = str | PathLike[str] | nn.Module | Mapping[str, Tensor]

_OF_HEAD = ("backbone", "head_channels", "output_stride")
FOLLOWED = ("width", "padding", *_OF_HEAD, "norm", "standardized", "depth")
"""Options of `create_network` that follow the weights where they are None."""


class Described(NamedTuple):
    """What `create_network` builds.

    Attributes:
        config: Of the network; one that classifies images is still to be cut to `first_blocks`.
        weights: Those to load; of the hub, the file.
        normalization: That of the weights, if it is described.
        of_backbone: Whether the weights are those of a backbone, and the decode head is random.
    """

    config: NetworkConfig
    weights: Weights | None
    normalization: Normalization | None = None
    of_backbone: bool = False


def describe_network(
    name: str,
    *,
    weights: Weights | None = None,
    first_blocks: int | None = None,
    **options: Any,
) -> NetworkConfig:
    """The config of the network that `create_network` would build, without loading weights.

    Args and errors are those of `create_network`.
    """
    config = described(name, weights, first_blocks=first_blocks, **options).config
    if first_blocks is None or is_dense(name):
        return config
    network = build(config)
    set_about(network, config=config)
    shorter = about(truncate(network, first_blocks)).config
    assert shorter is not None
    return shorter


def described(
    name: str,
    weights: Weights | None,
    *,
    classes: int = 1000,
    feature_fusion: bool | None = None,
    hidden: Mapping[str, int] | None = None,
    subnet: Mapping[str, Any] | None = None,
    first_blocks: int | None = None,
    **asked: Any,
) -> Described:
    """The network of these options of `create_network`, before any blocks are cut off.

    Args:
        name: Of the network.
        weights: Those that it is asked to have.
        classes: See `create_network`, as the next ones.
        feature_fusion: None follows the weights.
        hidden: None for no pruned blocks, except those of the weights.
        subnet: None follows the weights.
        first_blocks: Only of the backbone of a network that classifies pixels.
        asked: The options of `FOLLOWED`, where they are not to follow the weights.
    """
    asked = {**dict.fromkeys(FOLLOWED), **asked}
    fusion = feature_fusion is not False
    weights = _fetched(name, weights, asked["width"], asked["padding"], fusion, asked["depth"])
    followed = _followed(name, weights, asked)
    config = NetworkConfig(name, classes, hidden=hidden or {}, subnet=subnet, **followed)
    if is_dense(name):
        config = replace(config, first_blocks=first_blocks)
        if weights is not None and not _has_decode_head(weights):
            config = _on_backbone(with_published_options(config), weights)
            return Described(config, weights, of_backbone=True)
    config, normalization = _completed(config, weights, feature_fusion)
    return Described(config, weights, normalization)


def _fetched(
    name: str,
    weights: Weights | None,
    width: float | None,
    padding: str | None,
    feature_fusion: bool,
    depth: float | None,
) -> Weights | None:
    """The file of weights that are on the hub; other weights as they are.

    Raises:
        PocketuneError: No weights were published for these options, or the hub has no such file;
            or name or weights are something else.
    """
    check_type(str, name=name)
    if weights is not None and not isinstance(weights, (str, PathLike, nn.Module, Mapping)):
        raise PocketuneError(
            f"weights={weights!r} must be 'imagenet', a file, a state dict or a model"
        )
    published = PUBLISHED.get(name)
    if published is not None and published.hub and weights == "imagenet":
        options: dict[str, Any] = {
            "width": 1.0 if width is None else width,
            "padding": padding or PADDINGS[0],
            "depth": 1.0 if depth is None else depth,
        }
        require_published(name, **options, feature_fusion=feature_fusion)
        weights = HUB + published.hub
    return fetch(weights) if is_hub(weights) else weights


def _followed(name: str, weights: Weights | None, asked: dict[str, Any]) -> dict[str, Any]:
    """Options of a config: those that are asked for, else those of the weights.

    Those of a decode head follow weights of the same network alone. A file without a description
    tells the width of a network that classifies images.
    """
    there = None
    if isinstance(weights, nn.Module):
        there = as_it_computes(weights)
    elif (file := _file(weights)) is not None:
        if recorded := read_description(file):
            there = recorded[0]
        elif asked["width"] is None and not is_dense(name):
            asked["width"] = width_of(name, file)
    usual = NetworkConfig("")
    there = there or usual
    head = there if there.name == name else usual
    return {
        option: getattr(head if option in _OF_HEAD else there, option) if value is None else value
        for option, value in asked.items()
    }


def _completed(
    config: NetworkConfig, weights: Weights | None, fusion: bool | None
) -> tuple[NetworkConfig, Normalization | None]:
    """The config with what is known of the weights' network; and its normalization.

    Raises:
        PocketuneError: A file describes another network.
    """
    config = with_published_options(config)
    if isinstance(weights, nn.Module) and (own := about(weights)).config is not None:
        fusion = own.config.feature_fusion if fusion is None else fusion
        config = replace(config, feature_fusion=fusion)
        return _ending_as(config, own.config, "the given network"), own.normalization
    file = _file(weights)
    recorded = None if file is None else read_description(file)
    if fusion is None:
        fusion = recorded[0].feature_fusion if recorded else file is None or _has_fusion(file)
    config = replace(config, feature_fusion=fusion)
    if file is None or recorded is None:
        return config, None if file is None else described_normalization(file)
    there, normalization = recorded
    require_same(config, there, file)
    config = replace(
        _ending_as(config, there, file.name),
        hidden=config.hidden or there.hidden,
        branches=there.branches,
        subnet=config.subnet or there.subnet,
    )
    return config, normalization


def _ending_as(config: NetworkConfig, there: NetworkConfig, source: str) -> NetworkConfig:
    """The config with as many blocks as the network of the weights.

    Raises:
        PocketuneError: It has another number.
    """
    if config.first_blocks not in (None, there.first_blocks):
        raise PocketuneError(
            f"{source} is a network with first_blocks={there.first_blocks}, not "
            f"{config.first_blocks}; ask for that"
        )
    return replace(config, first_blocks=there.first_blocks)


def _on_backbone(config: NetworkConfig, weights: Weights) -> NetworkConfig:
    """The config of a decode head over a backbone of these weights.

    It has the blocks of the weights, with the pruned ones and the lite residual modules.
    """
    source = _completed(backbone_config(config), weights, None)[0]
    first_blocks = config.first_blocks or source.first_blocks
    config = replace(config, subnet=source.subnet, first_blocks=first_blocks)
    if not source.hidden and not source.branches:
        return config
    with torch.device("meta"):
        network = make_network(source)
    stages = stages_of(network, feature_fusion=False, first_blocks=config.first_blocks)
    paths = {
        module: f"backbone.{stage.name}.{path}".rstrip(".")
        for stage in stages
        for path, module in stage.module.named_modules()
    }

    def moved(of_blocks: Mapping[str, Any]) -> dict[str, Any]:
        there = ((network.get_submodule(path), value) for path, value in of_blocks.items())
        return {paths[block]: value for block, value in there if block in paths}

    return replace(config, hidden=moved(source.hidden), branches=moved(source.branches))


def _has_decode_head(weights: Weights) -> bool:
    """Whether weights are those of a network that classifies pixels, or only of a backbone."""
    if isinstance(weights, nn.Module):
        weights = weights.state_dict()
    elif not isinstance(weights, Mapping):
        path = _file(weights)
        if path is None or path.suffix == INT8:
            return False
        weights = read_state(path)
    return any(plain_name(str(name)).startswith("backbone.") for name in weights)


def _has_fusion(file: Path) -> bool:
    return has_fusion(file) if file.suffix == INT8 else not lacks_fusion(file)


def _file(weights: Weights | None) -> Path | None:
    if weights is None or isinstance(weights, (nn.Module, Mapping)) or weights == "imagenet":
        return None
    return Path(weights)
