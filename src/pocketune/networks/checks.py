"""What has to be true of a module before it is adapted, compiled or accounted for."""

from inspect import Parameter, signature

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from pocketune.errors import PocketuneError

_WRAPPERS = {
    "OptimizedModule": "_orig_mod",
    "DataParallel": "module",
    "DistributedDataParallel": "module",
}
"""PyTorch's wrappers of networks, and their attribute that is the network."""


def require_module(network: object) -> nn.Module:
    """The argument, which has to be a module, a network or a part of one.

    Raises:
        PocketuneError: It is not.
    """
    if not isinstance(network, nn.Module):
        raise PocketuneError(
            f"network={network!r} must be a PyTorch module, such as one of create_network"
        )
    return network


def require_shapes(network: nn.Module) -> None:
    """Check that no parameter is lazy.

    Raises:
        PocketuneError: One is, and its name.
    """
    lazy = [name for name, p in network.named_parameters() if is_lazy(p)]
    if lazy:
        raise PocketuneError(f"{lazy[0]} has no shape yet: run the network on an image first")


def require_network(network: object) -> None:
    """Check that an argument is a network of images, not its name, a script or a wrapper.

    Raises:
        PocketuneError: It is not; the message says what to give.
    """
    module = require_module(network)
    if isinstance(network, torch.jit.ScriptModule):
        raise PocketuneError(
            "the network is a TorchScript module, whose code cannot be changed; give the module "
            "that was scripted or traced"
        )
    kind = type(network)
    if kind.__module__.startswith("torch.") and kind.__name__ in _WRAPPERS:
        raise PocketuneError(
            f"the network is wrapped in {kind.__name__}; give network.{_WRAPPERS[kind.__name__]}"
        )
    if len(inputs := _required_inputs(module)) > 1:
        raise PocketuneError(
            f"{kind.__name__} needs {' and '.join(inputs)}, and a network is given images only; "
            f"give {inputs[1]} a default in its forward method, or wrap it in a module that takes "
            "one argument"
        )


def _required_inputs(network: nn.Module) -> list[str]:
    """Names of the arguments of the forward method that have no default."""
    several = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    arguments = signature(network.forward).parameters.values()
    return [a.name for a in arguments if a.default is a.empty and a.kind not in several]


def require_values(network: nn.Module, reader: str = "a kit") -> None:
    """Check that all values are finite and in float32, or whole numbers.

    Buffers may hold infinities, as masks of attention and limits of activations do. Running
    statistics may not.

    Args:
        network: Any module.
        reader: What needs them.

    Raises:
        PocketuneError: They are not; the message names the first tensor.
    """
    buffers = dict(network.named_buffers())
    for name, tensor in network.state_dict().items():
        if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point():
            continue
        if tensor.dtype != torch.float32:
            raise PocketuneError(
                f"{name} is {str(tensor.dtype).removeprefix('torch.')}, and {reader} computes in "
                "float32; call network.float() first"
            )
        infinite = name in buffers and not name.rpartition(".")[-1].startswith("running_")
        if not tensor.is_meta and not (tensor.isfinite() | (tensor.isinf() & infinite)).all():
            raise PocketuneError(
                f"{name} holds a value that is not finite; load the network's weights again"
            )
