"""Creating networks, with or without pretrained weights."""

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from pocketune.errors import PocketuneError, Remedy
from pocketune.networks.about import Normalization, about, check_normalization, set_about
from pocketune.networks.anatomy.output import classifier_layers
from pocketune.networks.architectures.backbone import Backbone, Staged
from pocketune.networks.architectures.dense import DenseNetwork, backbone_config
from pocketune.networks.config import NetworkConfig
from pocketune.networks.registry import is_dense, make_network, with_published_options
from pocketune.surgery.norms import use_norms
from pocketune.surgery.truncate import truncate
from pocketune.weights.download import download, require_published
from pocketune.weights.formats.files import load_state, read_state, unwrap
from pocketune.weights.formats.folded import is_folded, lacks_fusion, load_folded
from pocketune.weights.formats.int8 import INT8, has_fusion, load_int8
from pocketune.weights.formats.module import load_module
from pocketune.weights.formats.torchvision import from_torchvision, is_torchvision
from pocketune.weights.hub import HUB, described_normalization, fetch, is_hub
from pocketune.weights.published import PUBLISHED, usual_normalization
from pocketune.weights.saved import as_it_computes, build, read_description, require_same

Weights = str | PathLike[str] | nn.Module | Mapping[str, Tensor]


def create_network(
    name: str,
    *,
    weights: Weights | None = None,
    classes: int = 1000,
    width: float = 1.0,
    padding: str = "symmetric",
    feature_fusion: bool | None = None,
    hidden: Mapping[str, int] | None = None,
    normalization: Normalization | None = None,
    backbone: str | None = None,
    head_channels: int | None = None,
    output_stride: int | None = None,
    norm: str | None = None,
    standardized: bool | None = None,
    subnet: Mapping[str, Any] | None = None,
    depth: float | None = None,
    first_blocks: int | None = None,
) -> nn.Module:
    """Build a network that takes images (N, 3, H, W), normalized as `about(network)` says.

    A network that classifies images gives logits (N, classes). One that classifies pixels, of
    `list_networks(dense=True)`, gives logits (N, classes, h, w) in the resolution of its decode
    head.

    If `weights` have another number of classes, the output layer is initialized: uniform in
    +-1 / sqrt(fan in), or, of a network that classifies pixels, normal with a deviation of 0.01;
    bias 0.

    Args:
        name: One of `list_networks()`.
        weights: None for random ones; `"imagenet"` to download the published ones;
            `"hf-hub:OWNER/NAME"` for a repository of the Hugging Face hub, such as those of timm;
            a file, `.safetensors`, `.pth`, or `.npz` with int8 kernels, which stay int8 unless a
            method trains them; a state dict; or a model of timm or torchvision of the same shape.
            A file of `save_network` describes its pruned blocks and lite residual modules. For a
            file with folded batch norms, each norm becomes the identity plus a bias: call
            `restore_batch_norm` before a norm is trained. A network that classifies pixels takes
            its own weights, torchvision's of the same network, or any weights of its backbone; its
            head is then random.
        classes: Outputs of the network.
        width: Multiplier of every layer's channels.
        padding: `"symmetric"`, or `"same"` for weights that come from TensorFlow.
        feature_fusion: Whether to have the feature-fusion layer, the 1x1 convolution before
            pooling; None follows the weights, a file or a network of ours.
        hidden: Hidden channels of pruned blocks, as in `NetworkConfig`; not needed for a file of
            `save_network`.
        normalization: The normalization that the weights were trained with, if it is not
            that of the published ones. Folded files have it in the `.arch.json` in their folder,
            files of `save_network` in their header, files of the hub in the `config.json` beside
            them.
        backbone: Of a network that classifies pixels: one of `list_networks(dense=False)`; None for
            the published one.
        head_channels: Channels of its decode head; None for the published number.
        output_stride: Side of the image over the side of the last map, that of the backbone in a
            network that classifies pixels: 4, 8, 16 or 32. Strides beyond it become dilations.
            None for the published one; networks that classify images have no dilations.
        norm: `"batch"`; or `"group"`, which gives every image statistics of its own, with 8
            channels a group. Of weights with batch norms, group norms take over scale and shift.
            None follows the weights.
        standardized: Whether each filter of a convolution with a norm has mean 0 and standard
            deviation 1 in the forward pass (weight standardization). None follows the weights.
        subnet: Which sub-network of a supernet, as in `NetworkConfig`; not needed for a file of
            `save_network`.
        depth: Multiplier of the number of blocks of every stage, rounded up, for the networks
            that have it. None follows the weights.
        first_blocks: How many blocks to keep, with their pooled features classified; weights may be
            those of the whole network. None follows the weights. See `truncate`.

    Returns:
        The network in training mode; `about(network)` has its `config` and `normalization`.

    Raises:
        PocketuneError: A name or option is unknown; weights cannot be loaded or do not fit, and
            the message names the first layer that does not.

    Example:
        >>> import torch
        >>> from pocketune import about
        >>> network = create_network("mobilenet_v2", width=0.35, classes=10)
        >>> about(network).config.width, about(network).normalization.std[0]
        (0.35, 0.229)
        >>> network = create_network("deeplabv3", backbone="mobilenet_v2", width=0.35, classes=11)
        >>> network.eval()(torch.zeros(1, 3, 64, 96)).shape
        torch.Size([1, 11, 8, 12])
    """
    if normalization is not None:
        check_normalization(normalization)
    weights = _fetched(name, weights, width, padding, feature_fusion is not False, depth)
    config = NetworkConfig(
        name,
        classes,
        width,
        padding,
        hidden=hidden or {},
        backbone=backbone,
        head_channels=head_channels,
        output_stride=output_stride,
        **_followed(weights, norm, standardized, depth),
        subnet=subnet,
    )
    _check_first_blocks(name, first_blocks)
    if weights is not None and is_dense(name) and not _has_decode_head(weights):
        return _on_backbone(with_published_options(config), weights, normalization)
    config, recorded = _completed(config, weights, feature_fusion)
    normalization = normalization or recorded
    network = build(config)
    known = None if weights is None else _load(network, config, weights, normalization)
    usual = usual_normalization(config.backbone or name)
    set_about(
        network,
        config=config,
        normalization=normalization or known or usual,
        random_decode_head=is_dense(name) and weights is None,
    )
    return network if first_blocks is None else truncate(network, first_blocks)


def _check_first_blocks(name: str, first_blocks: int | None) -> None:
    if first_blocks is not None and is_dense(name):
        raise PocketuneError(
            f"{name} classifies pixels: first_blocks is for networks that classify images"
        )


def _fetched(
    name: str,
    weights: Weights | None,
    width: float,
    padding: str,
    feature_fusion: bool,
    depth: float | None,
) -> Weights | None:
    """The file of weights that are on the hub; other weights as they are."""
    published = PUBLISHED.get(name)
    if published is not None and published.hub and weights == "imagenet":
        options: dict[str, Any] = {"width": width, "padding": padding, "depth": depth or 1.0}
        require_published(name, **options, feature_fusion=feature_fusion)
        weights = HUB + published.hub
    return fetch(weights) if is_hub(weights) else weights


def _followed(
    weights: Weights | None,
    norm: str | None,
    standardized: bool | None,
    depth: float | None = None,
) -> dict[str, Any]:
    """Options of a config: those that are asked for, else those of the weights."""
    there = None
    if isinstance(weights, nn.Module):
        there = as_it_computes(weights)
    elif (file := _file(weights)) is not None and (recorded := read_description(file)):
        there = recorded[0]
    if norm is None:
        norm = "batch" if there is None else there.norm
    if standardized is None:
        standardized = False if there is None else there.standardized
    if depth is None:
        depth = 1.0 if there is None else there.depth
    return {"norm": norm, "standardized": standardized, "depth": depth}


def _has_decode_head(weights: Weights) -> bool:
    """Whether weights are those of a network that classifies pixels, or only of a backbone."""
    if isinstance(weights, nn.Module):
        weights = weights.state_dict()
    elif not isinstance(weights, Mapping):
        path = _file(weights)
        if path is None or path.suffix == INT8:
            return False
        weights = read_state(path)
    return any(str(name).removeprefix("module.").startswith("backbone.") for name in weights)


def _on_backbone(
    config: NetworkConfig, weights: Weights, normalization: Normalization | None
) -> nn.Module:
    """The network of `config` with a backbone of these weights and a random head."""
    network = make_network(config)
    options = backbone_config(config).to_dict()
    del options["classes"], options["feature_fusion"]  # those of the weights
    source = create_network(**options, weights=weights, normalization=normalization)
    assert isinstance(network, DenseNetwork)
    assert isinstance(source, Staged)
    network.backbone = Backbone(source.stages(feature_fusion=True), network.backbone.taps)
    use_norms(network, config.norm, standardized=config.standardized)
    facts = about(source)
    assert facts.config is not None
    set_about(
        network,
        config=_changed_as(config, facts.config),
        normalization=facts.normalization,
        random_decode_head=True,
    )
    return network


def _changed_as(config: NetworkConfig, source: NetworkConfig) -> NetworkConfig:
    """The config with the pruned blocks and lite residual modules of its backbone's weights."""
    paths = {
        path: f"backbone.{path.removeprefix('features.')}"
        for path in (*source.hidden, *source.branches)
    }
    return replace(
        config,
        hidden={paths[path]: count for path, count in source.hidden.items()},
        branches={paths[path]: arguments for path, arguments in source.branches.items()},
        subnet=source.subnet,
    )


def describe_network(
    name: str,
    *,
    weights: Weights | None = None,
    classes: int = 1000,
    width: float = 1.0,
    padding: str = "symmetric",
    backbone: str | None = None,
    head_channels: int | None = None,
    output_stride: int | None = None,
    norm: str | None = None,
    standardized: bool | None = None,
    first_blocks: int | None = None,
) -> NetworkConfig:
    """The config of the network that `create_network` would build, without building it.

    Args and errors are those of `create_network`; of a file, only its description is read.
    """
    _check_first_blocks(name, first_blocks)
    weights = _fetched(name, weights, width, padding, True, None)
    config = NetworkConfig(
        name,
        classes,
        width,
        padding,
        backbone=backbone,
        head_channels=head_channels,
        output_stride=output_stride,
        **_followed(weights, norm, standardized),
    )
    if weights is not None and is_dense(name) and not _has_decode_head(weights):
        config = with_published_options(config)
        alone = backbone_config(config)
        known = _completed(alone, weights, None)[0]
        return _changed_as(config, known)
    config = _completed(config, weights, None)[0]
    if first_blocks is None:
        return config
    network = build(config)
    set_about(network, config=config)
    shorter = about(truncate(network, first_blocks)).config
    assert shorter is not None
    return shorter


def _completed(
    config: NetworkConfig, weights: Weights | None, fusion: bool | None
) -> tuple[NetworkConfig, Normalization | None]:
    """The config with what is known of the weights' network; and its normalization."""
    config = with_published_options(config)
    if isinstance(weights, nn.Module) and (own := about(weights)).config is not None:
        fusion = own.config.feature_fusion if fusion is None else fusion
        first = own.config.first_blocks
        return replace(config, feature_fusion=fusion, first_blocks=first), own.normalization
    file = _file(weights)
    recorded = None if file is None else read_description(file)
    if fusion is None:
        fusion = recorded[0].feature_fusion if recorded else file is None or _has_fusion(file)
    config = replace(config, feature_fusion=fusion)
    if file is None or recorded is None:
        return config, None if file is None else described_normalization(file)
    there, normalization = recorded
    require_same(config, there, file)
    hidden = config.hidden or there.hidden
    subnet = config.subnet or there.subnet
    config = replace(
        config,
        hidden=hidden,
        branches=there.branches,
        subnet=subnet,
        first_blocks=there.first_blocks,
    )
    return config, normalization


def _has_fusion(file: Path) -> bool:
    return has_fusion(file) if file.suffix == INT8 else not lacks_fusion(file)


def _file(weights: Weights | None) -> Path | None:
    if weights is None or isinstance(weights, (nn.Module, Mapping)) or weights == "imagenet":
        return None
    if not isinstance(weights, (str, PathLike)):
        raise PocketuneError(
            f"weights={weights!r} must be 'imagenet', a file, a state dict or a model"
        )
    return Path(weights)


def _load(
    network: nn.Module,
    config: NetworkConfig,
    weights: Weights,
    normalization: Normalization | None,
) -> Normalization | None:
    """Fill `network`; returns the normalization if the weights have one."""
    outputs = _outputs(network)
    if isinstance(weights, nn.Module) and config.backbone is not None:
        weights = weights.state_dict()
    if isinstance(weights, nn.Module):
        return load_module(network, weights, outputs=outputs)
    if isinstance(weights, Mapping):
        source = "the given state dict"
        state = _named_as_here(unwrap(weights, source), config, source)
        load_state(network, state, outputs=outputs, source=source)
        return None
    if weights == "imagenet":
        load_state(network, download(config), outputs=outputs, source=f"{config.name} of ImageNet")
        return None
    path = Path(weights)
    if path.suffix == INT8:
        return load_int8(network, config, path, normalization)
    state = read_state(path)
    if is_folded(state):
        return load_folded(network, config, state, path, normalization)
    state = _named_as_here(state, config, path.name)
    load_state(network, state, outputs=outputs, source=path.name)
    return None


def _outputs(network: nn.Module) -> tuple[str, ...]:
    """The layer that computes the class scores, or those whose average they are."""
    layers = classifier_layers(network)
    last = network.get_submodule(layers[-1])
    if not isinstance(last, nn.Linear):
        return layers[-1:]
    sizes = last.in_features, last.out_features
    linear = {path: network.get_submodule(path) for path in layers}
    return tuple(
        path
        for path, layer in linear.items()
        if isinstance(layer, nn.Linear) and (layer.in_features, layer.out_features) == sizes
    )


def _named_as_here(
    state: dict[str, Tensor], config: NetworkConfig, source: str
) -> dict[str, Tensor]:
    return from_torchvision(state, config, source) if is_torchvision(state) else state


def load_network(path: str | PathLike[str]) -> nn.Module:
    """The network in a file of `save_network`, as it was saved.

    Raises:
        PocketuneError: The file is missing or damaged, or has no description.
    """
    path = Path(path)
    remedy = Remedy("saved network", "give a file that save_network has written")
    if not path.is_file():
        raise PocketuneError(f"there is no file {path}", remedy=remedy)
    state = read_state(path)
    recorded = read_description(path)
    if recorded is None:
        raise PocketuneError(f"{path} has no description of its network", remedy=remedy)
    config, normalization = recorded
    network = build(config)
    load_state(network, state, outputs=(), source=path.name)
    set_about(network, config=config, normalization=normalization)
    return network
