"""Whether anything asks for a layer's own backward pass."""

import torch
from torch import Tensor


def is_recorded(*inputs: Tensor | None) -> bool:
    """Whether autograd records what is computed of these, and not for a graph to predict by.

    Where it does not, a layer is to call PyTorch's own operators and no function of its own, which
    exports and traces of a network that predicts cannot take.
    """
    if torch.onnx.is_in_onnx_export():
        return False
    if in_transform():  # of which tensors do not tell
        return torch.is_grad_enabled()
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)


def in_transform() -> bool:
    """Whether `torch.func.grad`, `vmap` or another transform is at work."""
    return bool(torch._C._are_functorch_transforms_active())
