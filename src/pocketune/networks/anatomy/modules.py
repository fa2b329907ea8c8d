"""What kind of layer a module is, by its attributes and not only by its class.

Other packages, and our memory-efficient layers, have their own classes for convolutions, norms and
activations; these rules recognize them.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeGuard

from torch import nn

from pocketune.networks.about import about

Factory = Callable[[Any], nn.Module]
"""Makes a module from the module that it replaces or is attached to, of whatever class that is."""

BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d

ACTIVATIONS = (
    nn.ReLU,
    nn.ReLU6,
    nn.Hardtanh,
    nn.LeakyReLU,
    nn.PReLU,
    nn.ELU,
    nn.GELU,
    nn.SiLU,
    nn.Mish,
    nn.Hardswish,
    nn.Hardsigmoid,
    nn.Sigmoid,
    nn.Tanh,
)
ACTIVATION_WORDS = ("relu", "swish", "silu", "gelu", "mish", "sigmoid", "tanh", "activation")


def main_modules(network: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """`network.named_modules()` without the side branches that methods have added."""
    branches: list[str] = []
    for path, module in network.named_modules(prefix=prefix):
        if about(module).is_side_branch:
            branches.append(f"{path}.")
        if not f"{path}.".startswith(tuple(branches)):
            yield path, module


def is_within(path: str, module: str) -> bool:
    """Whether the path of a module or of a tensor is that of a module, or leads into it."""
    return module == "" or f"{path}.".startswith(f"{module}.")


def is_convolution(module: nn.Module) -> TypeGuard[nn.Conv2d]:
    """Whether a module is a two-dimensional convolution, or has the attributes of one."""
    return isinstance(module, nn.Conv2d) or (
        all(hasattr(module, name) for name in ("in_channels", "out_channels", "groups", "stride"))
        and len(getattr(module, "kernel_size", ())) == 2
    )


def weighs(module: nn.Module) -> bool:
    """Whether a module is a linear layer or a two-dimensional convolution."""
    return isinstance(module, nn.Linear) or is_convolution(module)


def has_own_forward(module: nn.Module) -> bool:
    """Whether a class of a user or another package computes, such as a cosine classifier's.

    Such a layer need not be linear in what it reads, nor use all its parameters.
    """
    return not type(module).forward.__module__.startswith(("torch.", "pocketune."))


def is_norm(module: nn.Module) -> bool:
    """Whether a module is a group norm, or has running statistics."""
    return isinstance(module, nn.GroupNorm) or hasattr(module, "running_mean")


def explain_cumulative_average(network: nn.Module) -> str | None:
    """What to do about the first batch norm with momentum=None; None if there is none."""
    for path, module in network.named_modules():
        if isinstance(module, BatchNorm) and module.momentum is None:
            return (
                f"the batch norm {path} has momentum=None, which weighs each batch by the "
                "number of batches before it; give it a number, such as momentum=0.1"
            )
    return None


def is_activation(module: nn.Module) -> bool:
    """Whether a module is an activation of PyTorch, or a childless module named like one."""
    if isinstance(module, ACTIVATIONS):
        return True
    name = type(module).__name__.lower()
    leaf = next(module.children(), None) is None
    return leaf and not is_norm(module) and any(word in name for word in ACTIVATION_WORDS)


def is_pointwise(conv: nn.Conv2d) -> bool:
    """Whether a convolution is 1x1 and dense."""
    return tuple(conv.kernel_size) == (1, 1) and conv.groups == 1


def is_depthwise(conv: nn.Conv2d) -> bool:
    """Whether a convolution has one kernel per channel."""
    return conv.groups == conv.in_channels == conv.out_channels > 1


def is_spatial(conv: nn.Conv2d) -> bool:
    """Whether a convolution is larger than 1x1 and not depthwise; it may be grouped."""
    return max(conv.kernel_size) > 1 and not is_depthwise(conv)


@dataclass
class ConvLayer:
    """A convolution and the paths of the norm and the activation registered after it."""

    path: str
    conv: nn.Conv2d
    norm: str | None = None
    activation: str | None = None


def conv_layers(modules: Iterable[tuple[str, nn.Module]]) -> list[ConvLayer]:
    """Convolutions in order, each with the norm and the activation that follow it."""
    layers: list[ConvLayer] = []
    for path, module in modules:
        if is_convolution(module):
            layers.append(ConvLayer(path, module))
        elif layers and is_norm(module) and layers[-1].norm is None:
            layers[-1].norm = path
        elif layers and is_activation(module) and layers[-1].activation is None:
            layers[-1].activation = path
    return layers
