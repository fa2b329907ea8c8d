"""Gradients of norms for a batch of one image, which PyTorch gets wrong."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_NORMS = (functional.batch_norm, functional.instance_norm, torch.batch_norm, torch.instance_norm)


class SingleImageNorms(TorchFunctionMode):
    """Lays out the gradients of the outputs of batch and instance norms as the outputs are.

    PyTorch 2.13 reads a gradient of shape (1, C, H, W) in the wrong order if it is channels-last,
    as that of a map is whose pixels become tokens by `flatten(2).transpose(1, 2)`.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        output = func(*args, **(kwargs or {}))
        if func in _NORMS and output.requires_grad:
            output.register_hook(Tensor.contiguous)
        return output
