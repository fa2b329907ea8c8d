"""Training runs on PyTorch: the network is built again from the run's own folder.

A kit holds its frozen part as graphs, which PyTorch cannot train by. The folder of such a run
therefore holds one file more than others, ``network.safetensors``: every value of the network
when the run began. With the network and the method of the manifest it gives the network back, on
any day and machine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from pocketune.compiler.torch_engine import TorchEngine
from pocketune.device.run_folder import NETWORK
from pocketune.errors import PocketuneError
from pocketune.methods import adapt, method_from_dict
from pocketune.networks import NetworkConfig, Normalization
from pocketune.networks.registry import build
from pocketune.networks.state import COUNTER

if TYPE_CHECKING:
    from pocketune.device.engine import FloatArray
    from pocketune.device.kit import Kit
    from pocketune.device.manifest import Manifest


class TorchEngines:
    """Makes engines of PyTorch from kits: an ``EngineFactory`` for ``train`` and ``resume``.

    Args:
        device: Where to compute, ``"cpu"`` or ``"cuda"``.
        network: All values of the network, for a new run. Where it is not given, the file in
            the run's folder is taken; a method that trains everything needs neither.
    """

    def __init__(self, device: str = "cpu", network: Path | None = None) -> None:
        self._device = device
        self._source = network

    def __call__(self, kit: Kit, state: Mapping[str, FloatArray]) -> TorchEngine:
        """An engine for the run in whose folder the kit lies.

        Raises:
            PocketuneError: The network cannot be built from what the kit and the file tell.
        """
        manifest, kept = kit.manifest, kit.path / NETWORK
        source = self._source or kept
        tensors = _read(source) if source.exists() else {}
        tensors.update((name, _tensor(value)) for name, value in state.items())
        network = _build(manifest, classes=len(state[manifest.classifier.weight]), kit=kit.path)
        _fill(network, tensors, kit.path)
        if not kept.exists():
            _write(network, kept)
        return TorchEngine(
            network,
            batch=manifest.batch,
            size=manifest.size,
            label_smoothing=manifest.label_smoothing,
            device=self._device,
        )


def _build(manifest: Manifest, *, classes: int, kit: Path) -> nn.Module:
    """The adapted network that a manifest describes, with values of no meaning."""
    try:
        config = replace(NetworkConfig.from_dict(manifest.network), classes=classes)
        network = build(config)
        vars(network)["config"] = config
        vars(network)["normalization"] = Normalization(manifest.mean, manifest.std)
        return adapt(network, method_from_dict(manifest.method))
    except PocketuneError as error:
        raise PocketuneError(
            f"the network of the kit {kit} cannot be built again in PyTorch ({error}): train it "
            "with the engine onnx"
        ) from error


def _fill(network: nn.Module, tensors: Mapping[str, Tensor], kit: Path) -> None:
    own = network.state_dict()
    needed = [name for name in own if not name.endswith(COUNTER)]
    strange = [n for n in needed if n not in tensors or tensors[n].shape != own[n].shape]
    if strange:
        raise PocketuneError(
            f"the kit {kit} does not hold all values of its network for PyTorch, such as "
            f"{strange[0]}: train it with the engine onnx, or begin with a network instead of a kit"
        )
    network.load_state_dict({name: tensors[name] for name in needed}, strict=False)


def _read(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise PocketuneError(f"{path} is damaged or cannot be read ({error})") from error


def _write(network: nn.Module, path: Path) -> None:
    """Save all values, whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        save_file(network.state_dict(), partial)
        with partial.open("rb") as stream:
            os.fsync(stream.fileno())
        partial.replace(path)
    except (SafetensorError, OSError) as error:
        raise PocketuneError(f"{path} cannot be written ({error})") from error
    finally:
        partial.unlink(missing_ok=True)


def _tensor(value: FloatArray) -> Tensor:
    return torch.from_numpy(np.array(value))  # a copy: the run's arrays are not the network's
