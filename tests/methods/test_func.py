"""`torch.func` on adapted networks: gradients are those of autograd, of each image too."""

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from pocketune.errors import PocketuneError
from pocketune.filtering import FilteredConv2d
from pocketune.layers import SignedHardswish
from pocketune.methods import (
    BiasAndLast,
    GradientFilter,
    SignedBackward,
    TinyTL,
    TopBlocks,
    adapt,
)

from ..networks.small import small_mobilenet

METHODS = [
    TopBlocks(2) + SignedBackward(),
    GradientFilter(layers=4),
    BiasAndLast() + GradientFilter(layers=4, bits=8),
    TinyTL(),
]
IMAGES, LABELS = torch.randn(3, 3, 32, 32), torch.tensor([0, 2, 1])


@pytest.fixture(params=METHODS, ids=str)
def adapted(request: pytest.FixtureRequest) -> nn.Module:
    torch.manual_seed(0)
    network = small_mobilenet()
    for name, parameter in network.named_parameters():  # the images must count
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    return adapt(network, request.param).eval()


def split(network: nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    parameters = dict(network.named_parameters())
    trained = {name: p.detach() for name, p in parameters.items() if p.requires_grad}
    return trained, {n: p.detach() for n, p in parameters.items() if n not in trained}


def loss(network: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(network(images), labels)


def expected(network: nn.Module, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
    wanted = {name: p for name, p in network.named_parameters() if p.requires_grad}
    gradients = torch.autograd.grad(loss(network, images, labels), list(wanted.values()))
    return dict(zip(wanted, gradients, strict=True))


def test_grad(adapted: nn.Module) -> None:
    trained, frozen = split(adapted)

    def of(trained: dict[str, Tensor]) -> Tensor:
        return functional.cross_entropy(
            functional_call(adapted, {**trained, **frozen}, IMAGES), LABELS
        )

    torch.testing.assert_close(grad(of)(trained), expected(adapted, IMAGES, LABELS))


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_gradients_of_each_image(adapted: nn.Module) -> None:
    trained, frozen = split(adapted)

    def of(trained: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        scores = functional_call(adapted, {**trained, **frozen}, image.unsqueeze(0))
        return functional.cross_entropy(scores, label.unsqueeze(0))

    found = vmap(grad(of), (None, 0, 0))(trained, IMAGES, LABELS)
    for i in range(len(IMAGES)):
        single = {name: gradients[i] for name, gradients in found.items()}
        truth = expected(adapted, IMAGES[i : i + 1], LABELS[i : i + 1])
        torch.testing.assert_close(single, truth, rtol=1e-3, atol=1e-5)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_what_is_mapped_over_keeps_its_own_gradient() -> None:
    """Maps do not tell there that they need one."""
    layer, x = SignedHardswish(), torch.randn(2, 3, 4)
    found = grad(lambda w: vmap(lambda row: layer(w * row))(x).sum())(torch.ones(()))
    torch.testing.assert_close(found, x[x >= 0].sum())


def test_second_derivatives_of_filtered_gradients_are_refused() -> None:
    conv = FilteredConv2d(1, 1, 1)

    def of(x: Tensor) -> Tensor:
        return conv(x.view(1, 1, 2, 2)).square().sum()

    with pytest.raises(PocketuneError, match="no second derivatives"):
        grad(lambda x: grad(of)(x).sum())(torch.randn(4))
