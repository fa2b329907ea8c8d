"""Creating networks, with or without pretrained weights."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from pocketune.errors import PocketuneError, Remedy, check_truth
from pocketune.networks.about import Normalization, about, check_normalization, set_about
from pocketune.networks.anatomy.output import classifier_layers
from pocketune.networks.architectures.backbone import Backbone, stages_of
from pocketune.networks.architectures.dense import DenseNetwork, backbone_config
from pocketune.networks.config import NetworkConfig
from pocketune.networks.registry import is_dense, make_network
from pocketune.surgery.norms import use_norms
from pocketune.surgery.truncate import truncate
from pocketune.weights.describe import Weights, described
from pocketune.weights.download import download
from pocketune.weights.formats.files import load_state, read_state, unwrap
from pocketune.weights.formats.folded import is_folded, load_folded
from pocketune.weights.formats.int8 import INT8, load_int8
from pocketune.weights.formats.module import load_module
from pocketune.weights.formats.torchvision import from_torchvision, is_torchvision
from pocketune.weights.published import usual_normalization
from pocketune.weights.saved import build, read_description, saved_state


def create_network(
    name: str,
    *,
    weights: Weights | None = None,
    classes: int = 1000,
    width: float | None = None,
    padding: str | None = None,
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
        width: Multiplier of every layer's channels; None follows the weights, a file or a network
            of ours, and is otherwise 1.
        padding: `"symmetric"`, or `"same"` for weights that come from TensorFlow; None follows the
            weights, a file of `save_network` or a network of ours, and is otherwise symmetric.
        feature_fusion: Whether to have the feature-fusion layer, the 1x1 convolution before
            pooling; None follows the weights, a file or a network of ours.
        hidden: Hidden channels of pruned blocks, as in `NetworkConfig`; not needed for a file of
            `save_network`.
        normalization: The normalization that the weights were trained with, if it is not
            that of the published ones. Folded files have it in the `.arch.json` in their folder,
            files of `save_network` in their header, files of the hub in the `config.json` beside
            them.
        backbone: Of a network that classifies pixels: one of `list_networks(dense=False)`; None
            follows weights of the whole network, and is otherwise the published one.
        head_channels: Channels of its decode head; None follows weights of the whole network, and
            is otherwise the published number.
        output_stride: Side of the image over the side of the last map, that of the backbone in a
            network that classifies pixels: 4, 8, 16 or 32. Strides beyond it become dilations.
            None follows weights of the same network, and is otherwise the published one; networks
            that classify images have no dilations.
        norm: `"batch"`; or `"group"`, which gives every image statistics of its own, with 8
            channels a group. Of weights with batch norms, group norms take over scale and shift.
            None follows the weights.
        standardized: Whether each filter of a convolution with a norm has mean 0 and standard
            deviation 1 in the forward pass (weight standardization). None follows the weights.
        subnet: Which sub-network of a supernet, as in `NetworkConfig`; not needed for a file of
            `save_network`.
        depth: Multiplier of the number of blocks of every stage, rounded up, for the networks
            that have it. None follows the weights.
        first_blocks: How many blocks to keep, of the backbone if the network classifies pixels;
            what follows reads their features. Weights may be those of the whole network, without a
            decode head. None follows the weights. See `truncate`.

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
    if feature_fusion is not None:
        check_truth(feature_fusion=feature_fusion)
    config, weights, recorded, of_backbone = described(
        name,
        weights,
        classes=classes,
        feature_fusion=feature_fusion,
        hidden=hidden,
        subnet=subnet,
        first_blocks=first_blocks,
        width=width,
        padding=padding,
        backbone=backbone,
        head_channels=head_channels,
        output_stride=output_stride,
        norm=norm,
        standardized=standardized,
        depth=depth,
    )
    if weights is not None and of_backbone:
        return _on_backbone(config, weights, normalization)
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
    if first_blocks is None or is_dense(name):
        return network
    return truncate(network, first_blocks)


def _on_backbone(
    config: NetworkConfig, weights: Weights, normalization: Normalization | None
) -> nn.Module:
    """The network of `config` with a backbone of these weights and a random head."""
    network = make_network(config)
    options = backbone_config(config).to_dict()
    del options["classes"], options["feature_fusion"]  # those of the weights
    source = create_network(**options, weights=weights, normalization=normalization)
    assert isinstance(network, DenseNetwork)
    network.backbone = Backbone(stages_of(source, feature_fusion=True), network.backbone.taps)
    use_norms(network, config.norm, standardized=config.standardized)
    set_about(
        network,
        config=config,
        normalization=about(source).normalization,
        random_decode_head=True,
    )
    return network


def _load(
    network: nn.Module,
    config: NetworkConfig,
    weights: Weights,
    normalization: Normalization | None,
) -> Normalization | None:
    """Fill `network`; returns the normalization if the weights have one."""
    outputs = _outputs(network)
    if isinstance(weights, nn.Module) and (facts := about(weights)).method and facts.config:
        weights = saved_state(weights)
    elif isinstance(weights, nn.Module) and config.backbone is not None:
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
