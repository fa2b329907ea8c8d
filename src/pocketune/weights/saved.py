"""Saved networks: safetensors files whose header describes how to build the network."""

import json
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from pocketune.errors import PocketuneError
from pocketune.files import reading
from pocketune.layers import (
    IntegerConv2d,
    LiteResidual,
    LowRank,
    PrunedBatchNorm2d,
    PrunedConv2d,
    StandardizedConv2d,
    product,
)
from pocketune.networks.about import Normalization, about
from pocketune.networks.anatomy.modules import Factory, main_modules
from pocketune.networks.anatomy.output import classifier_layers
from pocketune.networks.architectures.dense import DenseNetwork, initialize_output
from pocketune.networks.architectures.parts import initialize
from pocketune.networks.checks import require_module
from pocketune.networks.config import NetworkConfig
from pocketune.networks.registry import make_network
from pocketune.surgery.branch import BRANCH, add_branches
from pocketune.surgery.channels import narrow
from pocketune.surgery.norms import kernels_before_norms, use_norms
from pocketune.surgery.truncate import keep_first_blocks
from pocketune.weights.formats.files import COUNTER, check_writable, float_state, write_state

IMAGENET_CLASSES = 1000
"""Of the published weights."""

CHANGEABLE = {"output_stride": None, "norm": "batch", "standardized": False}
"""Options with the value from which weights may be loaded into a network of another value."""

HEADER = "pocketune.network"
"""Key of the description in the file's header."""


def save_network(network: nn.Module, path: str | PathLike[str]) -> None:
    """Write the values of a network of ours with its config and normalization.

    `create_network(..., weights=path)` reads the file, including pruned blocks and lite residual
    modules. The number of classes is that of the output layer. An adapted network is saved in the
    form before it was adapted, with its trained values: LoRA's updates are added to the weights
    beside them. 8-bit kernels are written exactly, in float32. If standardized kernels were frozen
    or have an update of LoRA, the file has every kernel as it is after standardization, and the
    option standardized=False: the same outputs.

    Raises:
        PocketuneError: The network is foreign and has no config, or no longer fits its config, as
            after a method has added modules or drops activations; the file cannot be written, or
            does not end in `.safetensors`.
    """
    path = Path(path)
    config = check_saveable(network, path)
    normalization = about(network).normalization
    facts = {"config": config.to_dict(), "normalization": asdict(normalization)}
    write_state(path, _state(network, standardized=config.standardized), HEADER, facts)


def _standardized_kernels(network: nn.Module) -> dict[str, Tensor]:
    """The kernels that layers standardize in every step, as they compute with them."""
    return {
        f"{path}.weight": module.kernel().detach()
        for path, module in main_modules(network)
        if isinstance(module, StandardizedConv2d)
    }


def check_saveable(network: nn.Module, path: Path) -> NetworkConfig:
    """The config that `save_network` would write, to check before long work.

    It makes the file's folder if there is none.

    Raises:
        PocketuneError: As `save_network` does.
    """
    require_module(network)
    if path.suffix != ".safetensors":
        raise PocketuneError(f"{path} must end in .safetensors")
    if any(isinstance(module, IntegerConv2d) for module in network.modules()):
        raise PocketuneError(
            "the network was calibrated to compute with integers, and its norms are folded; save "
            "the adapted network that was given to calibrate"
        )
    config = _config(network)
    check_writable(path)
    return config


def _config(network: nn.Module) -> NetworkConfig:
    """The config from which a network of the same tensors can be built."""
    config = about(network).config
    if config is None:
        kind = type(network).__name__
        raise PocketuneError(
            f"{kind} has no config to save, since create_network has not built it; save its values "
            "with torch.save(network.state_dict(), path)"
        )
    own = _shapes(network)
    config = replace(config, classes=own[f"{classifier_layers(network)[-1]}.weight"][0])
    config = replace(config, standardized=_standardizes(network, config))
    with torch.device("meta"):
        plain = build(config)
    read = _shapes(plain)
    strange = [name for name in {**own, **read} if own.get(name) != read.get(name)]
    altered = [*_swish_lost(network, plain), *_drops_outputs(network)]
    if other := next(iter(strange or altered), None):
        if (method := about(network).method) is not None:
            raise PocketuneError(
                f"{method} has changed or added {other}, which a file of save_network cannot "
                "describe; keep network.state_dict() and load it into the same network, adapted "
                "in the same way"
            )
        raise PocketuneError(
            f"the network's {other} does not fit its config and could not be loaded from a "
            "file; save the network that create_network, prune or insert_modules has returned"
        )
    return config


def _standardizes(network: nn.Module, config: NetworkConfig) -> bool:
    """Whether all kernels are standardized in every step.

    Frozen ones are standardized once, and a low-rank update is added to a standardized one.
    """
    updated = any(
        isinstance(module, StandardizedConv2d)
        and isinstance(getattr(module, BRANCH, None), LowRank)
        for module in network.modules()
    )
    return config.standardized and not kernels_before_norms(network) and not updated


def as_it_computes(network: nn.Module) -> NetworkConfig | None:
    """The config of a network with the kernels that it has now; None for a foreign network."""
    config = about(network).config
    if config is None:
        return None
    return replace(config, standardized=_standardizes(network, config))


def saved_state(network: nn.Module) -> dict[str, Tensor]:
    """The tensors that `save_network` writes of an adapted network of ours.

    Raises:
        PocketuneError: As `save_network`, but for the path.
    """
    return _state(network, standardized=_config(network).standardized)


def _swish_lost(network: nn.Module, plain: nn.Module) -> list[str]:
    """Paths of h-swishes that a method has replaced by a ReLU, which no tensor shows."""
    modules = dict(network.named_modules())
    return [
        path
        for path, module in plain.named_modules()
        if isinstance(module, nn.Hardswish) and "relu" in type(modules.get(path)).__name__.lower()
    ]


def _drops_outputs(network: nn.Module) -> list[str]:
    """Paths of layers that predict with zeros for small elements, which no tensor shows."""
    return [
        path
        for path, module in network.named_modules()
        if isinstance(module, (PrunedBatchNorm2d, PrunedConv2d)) and module.masks_forward
    ]


def _shapes(network: nn.Module) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors that a file must hold, by name."""
    state = _state(network, standardized=True)
    return {name: tuple(t.shape) for name, t in state.items() if not name.endswith(COUNTER)}


def _state(network: nn.Module, *, standardized: bool) -> dict[str, Tensor]:
    """The float values of a network, with low-rank updates added to the weights beside them.

    Without `standardized`, each kernel is that with which its layer computes.
    """
    state = float_state(network.state_dict())
    if not standardized:
        state |= _standardized_kernels(network)
    for path, module in network.named_modules():
        if isinstance(module, LowRank):
            down, up = (state.pop(f"{path}.{name}.weight") for name in ("down", "up"))
            weight = f"{path.removesuffix(f'.{BRANCH}')}.weight"
            state[weight] = state[weight] + product(down, up)
    return state


def recorded_classes(weights: str | PathLike[str] | None) -> int:
    """The number of classes of a file of `save_network`; ImageNet's for other weights."""
    if weights is None or not Path(weights).is_file():
        return IMAGENET_CLASSES
    recorded = read_description(Path(weights))
    return IMAGENET_CLASSES if recorded is None else recorded[0].classes


def read_description(path: Path) -> tuple[NetworkConfig, Normalization] | None:
    """The description in the header of a file; None without one, or without such a file.

    Raises:
        PocketuneError: The file is damaged, or its description is not understood.
    """
    if path.suffix != ".safetensors" or not path.is_file():
        return None
    with reading(path, SafetensorError), safe_open(path, "pt") as file:
        text = (file.metadata() or {}).get(HEADER)
    if text is None:
        return None
    try:
        facts = json.loads(text)
        mean, std = (_channels(facts["normalization"][key]) for key in ("mean", "std"))
        return NetworkConfig.from_dict(facts["config"]), Normalization(mean, std)
    except (ValueError, KeyError, TypeError) as error:
        raise PocketuneError(f"the description in {path} is not understood: {error}") from error


def _channels(values: Any) -> tuple[float, float, float]:
    red, green, blue = map(float, values)
    return red, green, blue


def require_same(asked: NetworkConfig, recorded: NetworkConfig, path: Path) -> None:
    """Check that weights are of the requested network; classes may differ.

    Weights of a network without dilations may be asked for with any output stride, those of batch
    norms with any norm, and those of ordinary kernels with standardized ones.

    Raises:
        PocketuneError: An option differs; the message gives its value in the file.
    """
    there = asdict(recorded)
    left_out = {"classes", "hidden", "branches", "subnet", "first_blocks"}
    left_out |= {name for name, usual in CHANGEABLE.items() if there[name] == usual}
    for name, value in there.items():
        if name not in left_out and getattr(asked, name) != value:
            raise PocketuneError(
                f"{path.name} holds a network with {name}={value!r}, not {getattr(asked, name)!r}; "
                "ask for that"
            )


def build(config: NetworkConfig) -> nn.Module:
    """The network that `config` describes, randomly initialized.

    Raises:
        PocketuneError: The name is unknown, this network does not have an option, or its blocks
            cannot have the `hidden` channels, or its norms these channels in groups.
    """
    network = make_network(config)
    if config.first_blocks is not None and not isinstance(network, DenseNetwork):
        keep_first_blocks(network, config.first_blocks)
    if config.hidden:
        narrow(network, config.hidden)
        initialize(network)
        if isinstance(network, DenseNetwork):
            initialize_output(network)
    use_norms(network, config.norm, standardized=config.standardized)
    add_branches(network, {block: _lite_residual(**a) for block, a in config.branches.items()})
    return network


def _lite_residual(**arguments: int) -> Factory:
    return lambda _: LiteResidual(**arguments)
