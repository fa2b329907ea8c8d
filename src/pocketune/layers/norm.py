"""Batch norm with fixed running statistics."""

import copy
import math
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from pocketune.errors import PocketuneError

Frozen = TypeVar("Frozen", bound="FrozenBatchNorm2d")


class FrozenBatchNorm2d(nn.Module):
    """Batch norm that always uses its running statistics and never changes them.

    Computes `x * s + b` with `s = weight / sqrt(running_var + eps)` and
    `b = bias - running_mean * s`, in training as in evaluation; `train()` changes nothing.

    Kept for the backward pass: 0 bits an element while `weight` is frozen, whether or not `bias`
    is trained; 32 bits an element (the input) if `weight` is trained. PyTorch's own batch norm in
    evaluation mode keeps its input in every case.

    The state dict is that of `nn.BatchNorm2d` without `num_batches_tracked`, which is ignored
    on loading.

    Args:
        features: Number of channels.
        eps: Added to the variance.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))
        self.register_buffer("running_mean", torch.zeros(features))
        self.register_buffer("running_var", torch.ones(features))

    @classmethod
    def from_batch_norm(
        cls: type[Frozen], norm: "nn.BatchNorm1d | nn.BatchNorm2d | FrozenBatchNorm2d"
    ) -> Frozen:
        """Take over the tensors of a batch norm (the same objects, not copies).

        In place of a missing weight it gets a frozen one of ones, and of a missing bias, zeros.
        Modules inside `norm` (timm's `BatchNormAct2d` has a dropout and an activation) keep their
        names and run after it, in their order.

        Raises:
            PocketuneError: If `norm` has no running statistics, or a forward pass of its own.
        """
        if norm.running_mean is None or norm.running_var is None:
            raise PocketuneError(
                f"{norm} cannot be frozen, since it has no running statistics; train it with "
                "FullFineTune() or Calibrate(), or build the network with track_running_stats=True"
            )
        frozen = cls(0, norm.eps)
        ones, zeros = torch.ones_like(norm.running_var), torch.zeros_like(norm.running_mean)
        frozen.weight = nn.Parameter(ones, False) if norm.weight is None else norm.weight
        frozen.bias = nn.Parameter(zeros, False) if norm.bias is None else norm.bias
        frozen.running_mean, frozen.running_var = norm.running_mean, norm.running_var
        for name, module in norm.named_children():
            frozen.add_module(name, module)
        require_same(norm, frozen)
        return frozen.train(norm.training)

    def forward(self, x: Tensor) -> Tensor:
        """(N, features, ...) -> the same shape."""
        x = self.normalize(x)
        for module in self.children():
            x = module(x)
        return x

    def normalize(self, x: Tensor) -> Tensor:
        """The norm itself, before the modules inside it."""
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        shift = self.bias - self.running_mean * scale
        # one pass, and autograd keeps x only for the gradient of the scale
        shape = (1, -1, *(1,) * (x.dim() - 2))
        return torch.addcmul(shift.view(shape), x, scale.view(shape))

    def extra_repr(self) -> str:
        """Features and eps, for `repr`."""
        return f"{len(self.weight)}, eps={self.eps}"

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        state_dict.pop(f"{prefix}num_batches_tracked", None)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


class FrozenBatchNorm1d(FrozenBatchNorm2d):
    """The same in the place of an `nn.BatchNorm1d`, as in classifiers."""


def require_usual(norm: nn.BatchNorm2d) -> None:
    """Check that a batch norm computes what its tensors and the modules inside it say.

    Raises:
        PocketuneError: It does not, or has no running statistics.
    """
    if type(norm).forward is not nn.BatchNorm2d.forward:
        FrozenBatchNorm2d.from_batch_norm(norm)


def require_same(norm: nn.Module, frozen: FrozenBatchNorm2d) -> None:
    """Check that a batch norm of a derived class can be replaced.

    timm's `BatchNormAct2d` can. Others scale the output, or compute their weight. Hooks do not
    count: the activation inside may have that of a side branch.

    Raises:
        PocketuneError: It computes something else.
    """
    like = frozen.running_mean
    usual = type(norm).forward in (nn.BatchNorm1d.forward, nn.BatchNorm2d.forward)
    if usual or isinstance(norm, FrozenBatchNorm2d) or like.is_meta:
        return
    shape = (2, len(frozen.running_mean), *(2, 3) * (not isinstance(norm, nn.BatchNorm1d)))
    x = torch.linspace(-1, 1, math.prod(shape), dtype=like.dtype, device=like.device).view(shape)
    copies = copy.deepcopy(nn.ModuleList([norm, frozen])).eval()
    for module in copies.modules():
        module._forward_hooks.clear()
    try:
        with torch.no_grad():
            expected, found = (made(x) for made in copies)
            same = torch.allclose(expected, found, rtol=1e-3, atol=1e-5)
    except (RuntimeError, TypeError, ValueError):
        same = False
    if not same:
        raise PocketuneError(
            f"{type(norm).__name__} computes something else than a batch norm, which no layer can "
            "replace; derive it from nn.Module with the batch norm inside, or train with "
            "FullFineTune()"
        )
