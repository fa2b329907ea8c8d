"""Group norms of which the shift alone is trained."""

from typing import Any

from torch import Tensor, nn

from pocketune.layers import GroupNorm


def make_contiguous(network: nn.Module) -> None:
    """Let group norms that train their shift alone take a contiguous map, in place.

    PyTorch 2.13 ends the process on the way back through one of a channels-last map that needs no
    gradient itself.
    """
    for module in network.modules():
        if isinstance(module, nn.GroupNorm) and not isinstance(module, GroupNorm):
            weight, bias = module.weight, module.bias
            if module.affine and bias.requires_grad and not weight.requires_grad:
                module.register_forward_pre_hook(_contiguous)


def _contiguous(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(x.contiguous() if isinstance(x, Tensor) else x for x in inputs)
