"""Weights files: reading and writing tensors, and loading them by name."""

import json
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from pocketune.errors import PocketuneError
from pocketune.files import make_folder_of, reading, replacing, writing
from pocketune.layers.quantized import dequantize

WRAPPERS = ("state_dict", "model", "model_state_dict")  # keys under which training scripts save it
PICKLED = (".pth", ".pt", ".ckpt")
PREFIXES = ("module.", "_orig_mod.", "model.")
"""What `DataParallel`, `torch.compile` and most Lightning modules put before the names."""


def read_state(path: Path) -> dict[str, Tensor]:
    """State dict in a `.safetensors`, `.pth`, `.pt` or `.ckpt` file; code in it never runs.

    Raises:
        PocketuneError: The file is missing, unknown or damaged, or holds no tensors.
    """
    if not path.is_file():
        raise PocketuneError(
            f"there is no weights file {path}; give 'imagenet' or a .safetensors, .pth or .npz file"
        )
    if path.suffix == ".safetensors":
        with reading(path, SafetensorError):
            return load_file(path)
    if path.suffix in PICKLED:
        return _read_pickle(path)
    raise PocketuneError(f"{path} is not a .safetensors, .pth or .npz file")


def write_state(
    path: Path, state: Mapping[str, Tensor], key: str, facts: Mapping[str, Any]
) -> None:
    """Write a `.safetensors` file whole, with facts in JSON under a key of its header."""
    tensors = {name: tensor.contiguous() for name, tensor in state.items()}
    with replacing(path, SafetensorError) as file:
        file.write_bytes(save(tensors, {key: json.dumps(facts)}))


def check_writable(path: Path) -> None:
    """Check, before long work, that a file can be written; its folder is made if there is none."""
    make_folder_of(path)
    with writing(path), tempfile.TemporaryFile(dir=path.parent):
        pass


def _read_pickle(path: Path) -> dict[str, Tensor]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle raises nearly anything
        raise PocketuneError(
            f"{path} cannot be read as a state dict of tensors; "
            "save it again with torch.save(model.state_dict(), ...)"
        ) from error
    return unwrap(content, str(path))


def unwrap(content: Any, source: str) -> dict[str, Tensor]:
    """The state dict inside the dictionaries that training scripts save.

    Raises:
        PocketuneError: `source` holds none.
    """
    if isinstance(content, Mapping):
        for name in WRAPPERS:
            if isinstance(content.get(name), Mapping):
                return unwrap(content[name], source)
        if content and all(
            isinstance(k, str) and isinstance(v, Tensor) for k, v in content.items()
        ):
            return {plain_name(name): value for name, value in content.items()}
    raise PocketuneError(f"{source} holds no state dict, which maps names to tensors")


def plain_name(name: str) -> str:
    """The name without `PREFIXES`, in any order."""
    while prefix := next(filter(name.startswith, PREFIXES), ""):
        name = name.removeprefix(prefix)
    return name


COUNTER = "num_batches_tracked"  # older files lack it, and nothing here reads it
STATISTICS = ("running_mean", "running_var", COUNTER)
"""What a batch norm has and a group norm has not."""


def float_state(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict with int8 kernels, `weight_int8` and `weight_scale`, as float `weight`s."""
    found: dict[str, Tensor] = {}
    for name, tensor in state.items():
        layer, _, kind = name.rpartition(".")
        if kind == "weight_int8":
            found[f"{layer}.weight"] = dequantize(tensor, state[f"{layer}.weight_scale"])
        elif kind != "weight_scale":
            found[name] = tensor
    return found


def load_state(
    network: nn.Module, state: Mapping[str, Tensor], *, outputs: Collection[str], source: str
) -> None:
    """Copy `state` into `network`.

    Args:
        network: Changed in place.
        state: Tensors by the names of `network.state_dict()`; kernels may be int8.
        outputs: Paths of the output layers, which are not changed if only their number of classes
            differs.
        source: Name of the weights for errors.

    Raises:
        PocketuneError: A tensor is missing, unknown, of another shape, of whole numbers or without
            values; the message names it.
    """
    own, state = network.state_dict(), _without_statistics(network, float_state(state), source)
    _check_names(own, state, source)
    fitting = {}
    for name, target in own.items():
        tensor = state.get(name, target)
        kinds = tensor.is_floating_point() or tensor.dtype == torch.int8
        if target.is_floating_point() and not kinds:
            raise PocketuneError(
                f"{source} does not fit the network: {name} has whole numbers, {tensor.dtype}"
            )
        if tensor.is_meta and not target.is_meta:
            raise PocketuneError(f"{source} has no values: {name} is on the meta device")
        if tensor.shape == target.shape:
            fitting[name] = tensor
        elif name.rpartition(".")[0] not in outputs or tensor.shape[1:] != target.shape[1:]:
            raise PocketuneError(
                f"{source} does not fit the network: {name} has shape {tuple(tensor.shape)} "
                f"there and {tuple(target.shape)} here; check name, width and feature_fusion"
            )
    network.load_state_dict(fitting, strict=False)


def _without_statistics(
    network: nn.Module, state: Mapping[str, Tensor], source: str
) -> dict[str, Tensor]:
    """The state without the statistics of batch norms where `network` has group norms.

    Raises:
        PocketuneError: The network has batch norms, and the state no statistics for them.
    """
    grouped = []
    for name, module in network.named_modules():
        if isinstance(module, nn.GroupNorm):
            grouped.append(name)
        elif isinstance(module, nn.BatchNorm2d) and f"{name}.weight" in state:
            require_statistics(name, f"{name}.running_mean" in state, source)
    left_out = {f"{name}.{part}" for name in grouped for part in STATISTICS}
    return {name: tensor for name, tensor in state.items() if name not in left_out}


def require_statistics(norm: str, known: bool, source: str) -> None:
    """Check that weights for a batch norm have running statistics.

    Raises:
        PocketuneError: They have none, as those of a group norm.
    """
    if not known:
        raise PocketuneError(
            f"{source} has no running statistics for the batch norm {norm}, as if it came from a "
            "network of group norms; create the network with norm='group'"
        )


def _check_names(own: Mapping[str, Tensor], state: Mapping[str, Tensor], source: str) -> None:
    missing = [name for name in own if name not in state and not name.endswith(COUNTER)]
    unknown = [name for name in state if name not in own]
    if missing or unknown:
        first = f"it lacks {missing[0]}" if missing else f"{unknown[0]} is not in the network"
        raise PocketuneError(
            f"{source} does not fit the network: {first} "
            f"({len(missing)} names missing, {len(unknown)} unknown); check name and feature_fusion"
        )
