"""MobileTL on networks with the modules and names of timm's."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from pocketune.errors import PocketuneError
from pocketune.layers import FrozenBatchNorm2d, SignedHardswish, SignedReLU, SignedReLU6
from pocketune.methods import MobileTL, adapt, final_plan
from pocketune.networks import anatomy

from ..layers.kept import kept_bytes
from ..networks.timm_like import MobileNetV2, MobileNetV3, SEResNet
from .test_mobiletl_memory import BATCH, SIZE, expected_bytes

METHOD = MobileTL(blocks=2)
NETWORKS: list[tuple[Callable[[], nn.Module], type[nn.Module]]] = [
    (MobileNetV2, SignedReLU6),
    (lambda: MobileNetV2(same=True), SignedReLU6),
    (MobileNetV3, SignedHardswish),
    (SEResNet, SignedReLU),
]
networks = pytest.mark.parametrize(
    ("make", "signed"), NETWORKS, ids=["v2", "v2-same", "v3", "seresnet"]
)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@networks
def test_a_step_trains_what_the_plan_says(
    make: Callable[[], nn.Module], signed: type[nn.Module]
) -> None:
    network = make()
    adapted = adapt(network, METHOD).train()
    loss = functional.cross_entropy(adapted(torch.randn(2, 3, SIZE, SIZE)), torch.tensor([0, 3]))
    loss.backward()
    gradients = {name for name, p in adapted.named_parameters() if p.grad is not None}
    assert gradients == final_plan(METHOD, network).trained
    for block in anatomy(network).blocks[-2:]:
        assert {f"{layer.conv}.weight" for layer in block.layers} <= gradients


@networks
def test_inner_norms_and_activations(
    make: Callable[[], nn.Module], signed: type[nn.Module]
) -> None:
    """Where norm and activation are one module, the activation inside it is replaced."""
    adapted = adapt(make(), METHOD)
    for block in anatomy(adapted).blocks[-2:]:
        *inner, last = (layer for layer in block.layers if layer.role != "downsample")
        assert isinstance(adapted.get_submodule(last.norm), nn.BatchNorm2d)
        for layer in inner:
            norm = adapted.get_submodule(layer.norm)
            assert type(norm) is FrozenBatchNorm2d
            assert norm.bias.requires_grad
            assert not norm.weight.requires_grad
            assert type(adapted.get_submodule(layer.activation)) is signed


@networks
def test_the_forward_pass_is_the_networks_own(
    make: Callable[[], nn.Module], signed: type[nn.Module]
) -> None:
    network = make()
    network(torch.randn(4, 3, SIZE, SIZE))  # norms with statistics
    x = torch.randn(2, 3, SIZE, SIZE)
    exact = adapt(network, METHOD, frozen_bits=32).eval()
    torch.testing.assert_close(exact(x), network.eval()(x))


@pytest.mark.parametrize("blocks", [1, 3])
def test_kept_for_the_backward_pass(blocks: int) -> None:
    """To the byte what a network of ours keeps."""
    network = adapt(MobileNetV2(), MobileTL(blocks=blocks)).train()
    images = torch.randn(BATCH, 3, SIZE, SIZE)
    assert kept_bytes(network, images) == expected_bytes(network, images, blocks)


class Preactivated(nn.Module):
    """He et al., 2016: norms come before their convolutions, and none after the last."""

    def __init__(self) -> None:
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3, padding=1)
        self.bn2, self.conv2 = nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(self.bn1(x).relu())
        return x + self.conv2(self.bn2(y).relu())


def test_norms_that_fit_are_recommended() -> None:
    layers = [nn.Conv2d(3, 4, 3), Preactivated(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    network = nn.Sequential(*layers, nn.Linear(4, 2))
    with pytest.raises(PocketuneError, match=r"norm='project' .* choose expand or all or shift"):
        adapt(network, MobileTL(blocks=1))
    adapt(network, MobileTL(blocks=1, norm="expand"))
