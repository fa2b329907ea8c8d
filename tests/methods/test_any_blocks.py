"""Methods on networks whose blocks are not rows of convolutions."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from pocketune.errors import PocketuneError
from pocketune.layers import FrozenBatchNorm2d, LiteResidual, SignedReLU
from pocketune.methods import (
    LoRA,
    Method,
    MobileTL,
    RepNet,
    SignedBackward,
    TinyTL,
    TopBlocks,
    adapt,
    final_plan,
)
from pocketune.networks import anatomy

from ..networks import modern


def images() -> torch.Tensor:
    return torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def check(network: nn.Module, method: Method) -> nn.Module:
    """The forward pass is the network's own, and a step trains what the plan names."""
    adapted = adapt(network, method, frozen_bits=32)
    torch.testing.assert_close(adapted.eval()(images()), network.eval()(images()))
    functional.cross_entropy(adapted.train()(images()), torch.tensor([0, 2])).backward()
    gradients = {name for name, p in adapted.named_parameters() if p.grad is not None}
    assert gradients == final_plan(method, network).trained
    return adapted


def test_top_blocks_of_a_transformer() -> None:
    """With the last norm, and without the class token."""
    network = modern.VisionTransformer()
    plan = final_plan(TopBlocks(1), network)
    assert {name.split(".")[0] for name in plan.trained} == {"blocks", "norm", "head"}
    assert {name.split(".")[1] for name in plan.trained if name.startswith("blocks")} == {"2"}
    check(network, TopBlocks(1))


def test_what_leads_to_a_block_is_trained_with_it() -> None:
    entry = {"1.1.0.0.weight", "1.1.0.0.bias", "1.1.0.1.weight", "1.1.0.1.bias"}
    assert entry <= final_plan(TopBlocks(1), modern.convnext()).trained
    assert not entry & final_plan(TopBlocks(0), modern.convnext()).trained


@pytest.mark.filterwarnings("ignore:the top blocks .* have no ReLU")
@pytest.mark.parametrize("make", [modern.ghostnet, modern.repvgg, modern.mixnet])
def test_mobiletl_on_blocks_of_convolutions(make) -> None:
    adapted = check(make(), MobileTL(1, norm="shift"))
    assert any(isinstance(module, FrozenBatchNorm2d) for module in adapted[1][-1].modules())


def test_mobiletl_trains_the_norms_of_the_projections_of_a_ghost_bottleneck() -> None:
    block = check(modern.ghostnet(), MobileTL(1))[1][2]
    full = [n for n, m in block.named_modules() if isinstance(m, nn.BatchNorm2d)]
    parts = ("primary_conv.1", "cheap_operation.1")
    assert full == [*(f"ghost2.{part}" for part in parts), "shortcut.1", "shortcut.3"]
    assert isinstance(block.ghost1.primary_conv[2], SignedReLU)


PLAIN = pytest.mark.parametrize("make", [modern.vgg, modern.plain])
"""Networks without branches."""


@PLAIN
def test_top_blocks_of_a_plain_network_have_their_norms(make) -> None:
    network = make()
    convolution = anatomy(network).blocks[1].layers[0]
    assert {name.rpartition(".")[0] for name in final_plan(TopBlocks(1), network).trained} == {
        convolution.conv,
        convolution.norm,
        "4",
    }
    check(network, TopBlocks(1))


@PLAIN
@pytest.mark.parametrize("method", [MobileTL(1), TopBlocks(1) + SignedBackward()], ids=str)
def test_activations_of_a_plain_network_keep_one_bit(make, method: Method) -> None:
    network = make()
    adapted = check(network, method)
    below, top = (block.layers[0].activation for block in anatomy(network).blocks)
    assert isinstance(adapted.get_submodule(top), SignedReLU)
    assert type(adapted.get_submodule(below)) is nn.ReLU


@PLAIN
@pytest.mark.parametrize("method", [TinyTL(), RepNet()], ids=str)
def test_branches_beside_the_convolutions_of_a_plain_network(make, method: Method) -> None:
    adapted = adapt(make(), method)
    assert adapted(images()).shape == (2, modern.CLASSES)


@pytest.mark.parametrize("method", [TinyTL(), RepNet()], ids=str)
@pytest.mark.parametrize("make", [modern.convnext, modern.ghostnet, modern.repvgg])
def test_branches_beside_blocks_of_maps(make, method: Method) -> None:
    adapted = adapt(make(), method)
    assert adapted(images()).shape == (2, modern.CLASSES)
    if isinstance(method, TinyTL):
        assert sum(isinstance(module, LiteResidual) for module in adapted.modules()) == 2


def test_rep_net_reads_where_a_layer_before_the_block_changes_the_maps() -> None:
    branches = final_plan(RepNet(), modern.convnext()).branches
    assert list(branches) == ["1.1.1.0"]


@pytest.mark.parametrize(
    ("make", "method", "message"),
    [
        (
            modern.VisionTransformer,
            MobileTL(1),
            "MobileTL shifts the batch norms.*block blocks.2, attention, has none",
        ),
        (modern.convnext, MobileTL(1), "block 1.1.1.0, convnext, has none"),
        (modern.densenet, MobileTL(1), "block 1.4.layer1, other, has none"),
        (modern.VisionTransformer, TinyTL(), "block blocks.0, attention, does not map one tensor"),
        (modern.VisionTransformer, RepNet(), "block blocks.0, attention, does not map one tensor"),
        (modern.densenet, TinyTL(), "block 1.0.layer1, other, does not map one tensor"),
    ],
)
def test_what_a_method_cannot_do_is_said_of_the_block(make, method: Method, message: str) -> None:
    with pytest.raises(PocketuneError, match=message):
        adapt(make(), method)


def test_lora_leaves_out_what_pytorchs_attention_does_not_call() -> None:
    layers = [nn.Conv2d(3, 8, 16, 16), nn.Flatten(2), Transposed()]
    network = nn.Sequential(*layers, nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), Mean())
    network.append(nn.Linear(8, 3))
    branches = final_plan(LoRA(), network).branches
    assert list(branches) == ["3.linear1", "3.linear2"]


class Transposed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(1, 2)


class Mean(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(1)


class ChannelsLast(nn.Module):
    """An inverted residual on maps (N, H, W, C), as files of TensorFlow's networks have them."""

    def __init__(self) -> None:
        super().__init__()
        self.expand, self.depthwise = nn.Conv2d(8, 24, 1), nn.Conv2d(24, 24, 3, 1, 1, groups=24)
        self.project = nn.Conv2d(24, 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.project(self.depthwise(self.expand(x.permute(0, 3, 1, 2))))
        return x + y.permute(0, 2, 3, 1)


class TensorFlows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2)
        self.blocks = nn.Sequential(ChannelsLast(), ChannelsLast())
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(x).permute(0, 2, 3, 1)).mean((1, 2)))


@pytest.mark.parametrize("method", [TinyTL(), RepNet()], ids=str)
def test_no_branch_stands_beside_a_block_whose_channels_are_last(method: Method) -> None:
    network = TensorFlows()
    assert [block.kind for block in anatomy(network).blocks] == ["inverted_residual"] * 2
    with pytest.raises(PocketuneError, match=r"blocks\.0, inverted_residual, does not map one"):
        adapt(network, method)
