"""The gradients of norms behind which the pixels of one image become tokens."""

import pytest
import torch
from torch import Tensor, nn

from pocketune.networks.single_image import SingleImageNorms


def written_out(norm: nn.BatchNorm2d | nn.InstanceNorm2d, x: Tensor) -> Tensor:
    """What a norm computes of one image, as arithmetic."""
    mean, variance = x.mean((2, 3), keepdim=True), x.var((2, 3), keepdim=True, correction=0)
    if isinstance(norm, nn.BatchNorm2d) and not norm.training:
        mean, variance = (each.view(1, -1, 1, 1) for each in (norm.running_mean, norm.running_var))
    y = (x - mean) / (variance + norm.eps).sqrt()
    return y * norm.weight.view(1, -1, 1, 1) + norm.bias.view(1, -1, 1, 1)


@pytest.mark.parametrize(
    "norm",
    [nn.BatchNorm2d(6), nn.BatchNorm2d(6).eval(), nn.InstanceNorm2d(6, affine=True)],
    ids=["batch", "fixed", "instance"],
)
def test_equal_those_of_the_arithmetic(norm: nn.BatchNorm2d | nn.InstanceNorm2d) -> None:
    torch.manual_seed(0)
    norm = norm.double()
    x, weight = torch.randn(1, 6, 4, 5).double(), torch.randn(20, 6).double()
    found = []
    for function in (norm, lambda x: written_out(norm, x)):
        leaf = x.clone().requires_grad_()
        with SingleImageNorms():
            y = function(leaf)
        (y.flatten(2).transpose(1, 2) * weight).sum().backward()
        found.append([leaf.grad, *(p.grad.clone() for p in norm.parameters())])
        norm.zero_grad()
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)
