"""Training runs in PyTorch: the network is rebuilt from the run's folder.

A kit holds its frozen part as graphs, which PyTorch cannot train. The folder of such a run
therefore holds one more file, `network.safetensors`: all values of the network at the start of
the run and, if known, the 8-bit formats of the feature maps in its frozen part. Together with the
manifest's network and method, it rebuilds the network on any machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor, nn

from pocketune.eager.calibrate import calibrate, input_formats
from pocketune.eager.engine import TorchEngine
from pocketune.errors import PocketuneError
from pocketune.files import ARCHIVE_DAMAGE, reading, replacing
from pocketune.kit.names import NETWORK
from pocketune.kit.packed import Packed
from pocketune.layers import QuantizedConv2d, Uint8, computes_integers
from pocketune.methods import adapt, method_from_dict
from pocketune.networks import NetworkConfig, Normalization, set_about
from pocketune.weights.formats.files import COUNTER
from pocketune.weights.saved import build

if TYPE_CHECKING:
    from pocketune.arrays import FloatArray
    from pocketune.kit.kit import Kit
    from pocketune.kit.manifest import Manifest
    from pocketune.kit.packed import RunFile


_FORMATS = "input_formats"
"""Key of the file's metadata: JSON, [scale, zero] by the path of the convolution."""


class TorchEngines:
    """Makes PyTorch engines from kits: an `EngineFactory` for `train` and `resume`.

    On the CPU, a frozen part with known formats computes with integers, as after `calibrate`, if
    PyTorch supports it.

    Args:
        device: Where to compute, `"cpu"` or `"cuda"`.
        network: A file with all values of the network, for a new run; by default the file in the
            run's folder. A method that trains everything needs neither.
    """

    def __init__(self, device: str = "cpu", network: RunFile | None = None) -> None:
        self._device = device
        self._source = network

    def __call__(self, kit: Kit, state: Mapping[str, FloatArray]) -> TorchEngine:
        """An engine for the run in whose folder the kit lies.

        Raises:
            PocketuneError: The network cannot be rebuilt from the kit and the file.
        """
        manifest, kept = kit.manifest, kit.path / NETWORK
        source = self._source or (kept if kept.exists() else None)
        tensors, formats = ({}, {}) if source is None else _read(source)
        tensors.update((name, _tensor(value)) for name, value in state.items())
        classes = manifest.task.count(state)
        bits = 8 if any(name.endswith(".weight_int8") for name in tensors) else 32
        network = _build(manifest, classes=classes, frozen_bits=bits, kit=kit.path)
        _fill(network, tensors, kit.path)
        for name, format in formats.items():
            conv = network.get_submodule(name)
            assert isinstance(conv, QuantizedConv2d)
            conv.input_format = format
        if not kept.exists():
            save_values(network, kept)
        if formats and self._device == "cpu" and computes_integers():
            network = calibrate(network)
        return TorchEngine(
            network,
            batch=manifest.batch,
            size=manifest.size,
            task=manifest.task,
            device=self._device,
        )


def save_values(network: nn.Module, path: Path) -> None:
    """Write all values of an adapted network for `TorchEngines`, atomically.

    Raises:
        PocketuneError: The file cannot be written.
    """
    metadata = {_FORMATS: json.dumps(input_formats(network))}
    with replacing(path, SafetensorError) as file:
        file.write_bytes(save(network.state_dict(), metadata))


def _build(manifest: Manifest, *, classes: int, frozen_bits: int, kit: Path) -> nn.Module:
    """The adapted network that a manifest describes, with arbitrary values."""
    try:
        config = replace(NetworkConfig.from_dict(manifest.network), classes=classes)
        network = build(config)
        set_about(network, config=config, normalization=Normalization(manifest.mean, manifest.std))
        return adapt(network, method_from_dict(manifest.method), frozen_bits=frozen_bits)
    except PocketuneError as error:
        raise PocketuneError(
            f"the network of the kit {kit} cannot be rebuilt in PyTorch ({error}); train it "
            "with the engine onnx"
        ) from error


def _fill(network: nn.Module, tensors: Mapping[str, Tensor], kit: Path) -> None:
    own = network.state_dict()
    needed = [name for name in own if not name.endswith(COUNTER)]
    strange = [n for n in needed if n not in tensors or tensors[n].shape != own[n].shape]
    if strange:
        raise PocketuneError(
            f"the kit {kit} does not hold all values of its network for PyTorch, such as "
            f"{strange[0]}; train it with the engine onnx, or start from a network instead of a kit"
        )
    network.load_state_dict({name: tensors[name] for name in needed}, strict=False)


def _read(path: RunFile) -> tuple[dict[str, Tensor], dict[str, Uint8]]:
    """The values, and the input formats of convolutions."""
    with reading(path, SafetensorError, *ARCHIVE_DAMAGE, ValueError, KeyError):
        tensors, metadata = _unpacked(path) if isinstance(path, Packed) else _mapped(path)
        formats = json.loads(metadata.get(_FORMATS, "{}"))
        return tensors, {name: Uint8(*format) for name, format in formats.items()}


def _mapped(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return tensors, file.metadata() or {}


def _unpacked(file: Packed) -> tuple[dict[str, Tensor], dict[str, str]]:
    content = file.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return load(content), header.get("__metadata__") or {}


def _tensor(value: FloatArray) -> Tensor:
    return torch.from_numpy(np.array(value))  # a copy: the run keeps its own arrays
