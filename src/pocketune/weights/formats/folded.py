"""Weights with folded batch norms: every convolution has a bias and no norm follows it.

The files name layers by their place: `stem`, `blocks.3.expand`, `blocks.3.dw`,
`blocks.3.project`, `head`, `classifier` (as a 1x1 convolution). A `.arch.json` in the same
folder describes how they were trained.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from pocketune.errors import PocketuneError, Remedy
from pocketune.files import reading
from pocketune.networks.about import Normalization
from pocketune.networks.anatomy.anatomy import Anatomy, anatomy
from pocketune.networks.anatomy.blocks import Layer
from pocketune.networks.config import NetworkConfig
from pocketune.weights.formats.files import load_state, read_state

ROLES = {"expand": "expand", "depthwise": "dw", "project": "project"}
RANGES = {"x = pixel/127.5 - 1": Normalization.HALF}  # as the .arch.json spells it


def is_folded(state: Mapping[str, Tensor]) -> bool:
    """Whether a state dict has only layers with biases, among them `stem` and `classifier`."""
    layers = {name.rpartition(".")[0] for name in state}
    complete = {f"{layer}.{part}" for layer in layers for part in ("weight", "bias")}
    return {"stem", "classifier"} <= layers and set(state) == complete


def lacks_fusion(path: Path) -> bool:
    """Whether a file has folded weights without a feature-fusion layer."""
    state = read_state(path)
    return is_folded(state) and "head.weight" not in state


def load_folded(
    network: nn.Module,
    config: NetworkConfig,
    state: Mapping[str, Tensor],
    path: Path,
    normalization: Normalization | None,
) -> Normalization:
    """Copy folded weights into the convolutions; each norm becomes the identity plus the bias.

    Raises:
        PocketuneError: A layer does not fit, the padding differs from the weights', the network
            has other norms, or the normalization of the images is unknown.
    """
    if config.norm != "batch" or config.standardized:
        raise PocketuneError(
            f"{path.name} has its batch norms folded into the kernels, which group norms and "
            "standardized kernels would undo; create the network with norm='batch' and "
            "standardized=False"
        )
    facts = _read_facts(path)
    _check_padding(facts, config, path)
    normalization = normalization or _normalization(facts)
    if normalization is None:
        raise PocketuneError(
            f"{path.name} does not say how images are normalized: put the "
            f"{_description(path).name} that it was published with into its folder",
            remedy=Remedy("normalization", "or give normalization, such as Normalization.HALF"),
        )
    body = anatomy(network)
    unfolded = _unfold(network, body, state, path)
    load_state(network, unfolded, outputs=body.classifier[-1:], source=path.name)
    return normalization


def _unfold(
    network: nn.Module, body: Anatomy, state: Mapping[str, Tensor], path: Path
) -> dict[str, Tensor]:
    """The state dict that `network` would have with these weights."""
    roles = {layer.role for block in body.blocks for layer in block.layers}
    if roles - {*ROLES} or any(block.squeeze_excite for block in body.blocks):
        raise PocketuneError(
            f"{path.name} has folded batch norms, which this network does not support"
        )
    left = dict(state)
    unfolded: dict[str, Tensor] = {}
    for name, layer in places(body):
        weight, bias = _take(left, name, path)
        unfolded[f"{layer.conv}.weight"] = weight
        norm = network.get_submodule(str(layer.norm))
        unfolded |= _identity(str(layer.norm), norm, bias)
    weight, bias = _take(left, "classifier", path)
    unfolded[f"{body.classifier[-1]}.weight"] = weight.flatten(1)
    unfolded[f"{body.classifier[-1]}.bias"] = bias
    if left:
        raise PocketuneError(
            f"{path.name} does not fit the network, which has no layer {next(iter(left))}; "
            "check name and feature_fusion"
        )
    return unfolded


def places(body: Anatomy) -> Iterator[tuple[str, Layer]]:
    """Every layer with its name in folded files."""
    for layer in body.stem:
        yield "stem", layer
    for number, block in enumerate(body.blocks):
        for layer in block.layers:
            yield f"blocks.{number}.{ROLES[layer.role]}", layer
    for layer in body.feature_fusion:
        yield "head", layer


def _take(left: dict[str, Tensor], name: str, path: Path) -> tuple[Tensor, Tensor]:
    if f"{name}.weight" not in left:
        raise PocketuneError(
            f"{path.name} does not fit the network: it lacks {name}; check name and feature_fusion"
        )
    return left.pop(f"{name}.weight"), left.pop(f"{name}.bias")


def _identity(name: str, norm: nn.Module, shift: Tensor) -> dict[str, Tensor]:
    """State of a batch norm that only adds `shift`."""
    ones = shift.new_ones(shift.shape)
    return {
        f"{name}.weight": ones,
        f"{name}.bias": shift,
        f"{name}.running_mean": shift.new_zeros(shift.shape),
        f"{name}.running_var": ones - float(norm.eps),  # type: ignore[arg-type]
    }


def _description(path: Path) -> Path:
    """`<net>.arch.json` in the folder of `<net>.float32.safetensors`; it may not exist."""
    return path.with_name(f"{published_name(path)}.arch.json")


def published_name(path: Path) -> str:
    """`<net>` of `<net>.float32.safetensors` and `<net>.int8.npz`; of other files the stem."""
    return path.stem.removesuffix(".float32").removesuffix(".int8")


def _read_facts(path: Path) -> dict[str, Any]:
    """The content of the `.arch.json` of a file; empty without it."""
    beside = _description(path)
    if not beside.is_file():
        return {}
    with reading(beside, ValueError):
        facts: dict[str, Any] = json.loads(beside.read_text(encoding="utf-8"))
    return facts


def _check_padding(facts: Mapping[str, Any], config: NetworkConfig, path: Path) -> None:
    """Check the padding: another one would load, and silently cost ten points of accuracy."""
    layers = [layer for stage in facts.get("stages", []) for layer in stage.get("layers", [])]
    for padding in {layer["padding"] for layer in layers} - {config.padding}:
        raise PocketuneError(
            f"{path.name} was trained with padding={padding!r}; create the network with it"
        )


def _normalization(facts: Mapping[str, Any]) -> Normalization | None:
    spelled = str(facts.get("input", {}).get("range", ""))
    return next((known for text, known in RANGES.items() if spelled.startswith(text)), None)
