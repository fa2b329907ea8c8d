"""Networks in files that tell how to build them: safetensors whose header holds the description."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from pocketune.errors import PocketuneError
from pocketune.layers import QuantisedConv2d
from pocketune.networks.config import NetworkConfig, Normalization

HEADER = "pocketune.network"
"""Key of the description in the file's header."""


def save_network(network: nn.Module, path: str | PathLike[str]) -> None:
    """Write all values of a network of ours with its config and normalization.

    `create_network(..., weights=path)` reads it, blocks that were pruned or have lite residual
    modules beside them included.

    Raises:
        PocketuneError: if the network has no config, being none of ours; if the file cannot be
            written or is called otherwise than `.safetensors`.
    """
    path = Path(path)
    config = getattr(network, "config", None)
    if not isinstance(config, NetworkConfig):
        kind = type(network).__name__
        raise PocketuneError(f"{kind} has no config to save; create it with create_network")
    if path.suffix != ".safetensors":
        raise PocketuneError(f"{path} must be called .safetensors")
    if any(isinstance(module, QuantisedConv2d) for module in network.modules()):
        raise PocketuneError(
            "a network with kernels of 8 bits is not saved; save one created from float32 weights"
        )
    described: Any = network
    facts = {"config": config.to_dict(), "normalization": asdict(described.normalization)}
    tensors = {name: tensor.contiguous() for name, tensor in network.state_dict().items()}
    try:
        save_file(tensors, path, metadata={HEADER: json.dumps(facts)})
    except (SafetensorError, OSError) as error:
        raise PocketuneError(f"{path} cannot be written ({error})") from error


def read_description(path: Path) -> tuple[NetworkConfig, Normalization] | None:
    """What the header of a file says; None where it says nothing, or there is no such file.

    Raises:
        PocketuneError: if the file is damaged, or its description is not understood.
    """
    if path.suffix != ".safetensors" or not path.is_file():
        return None
    try:
        with safe_open(path, "pt") as file:
            text = (file.metadata() or {}).get(HEADER)
    except (SafetensorError, OSError) as error:
        raise PocketuneError(f"{path} is no readable safetensors file: {error}") from error
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
    """Refuse weights of another network than the one asked for; classes may differ.

    Raises:
        PocketuneError: naming the first option that differs, and its value in the file.
    """
    wanted, there = _options(asked), _options(recorded)
    for name, value in there.items():
        if wanted[name] != value:
            raise PocketuneError(
                f"{path.name} holds a network with {name}={value!r}, not {wanted[name]!r}; "
                "ask for that"
            )


def _options(config: NetworkConfig) -> Mapping[str, Any]:
    left_out = ("classes", "hidden", "branches")
    return {name: value for name, value in asdict(config).items() if name not in left_out}
