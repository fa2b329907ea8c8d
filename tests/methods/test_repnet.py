"""Rep-Net: the published layouts, and what is trained."""

import copy

import pytest
import torch
from torch import nn

from pocketune.errors import PocketuneError
from pocketune.layers import ProgramModule
from pocketune.methods import BiasAndLast, MethodConflict, RepNet, SignedBackward, TinyTL, adapt
from pocketune.networks import anatomy
from pocketune.networks.architectures.parts import InvertedResidual
from pocketune.surgery import BRANCH
from pocketune.weights import create_network

from ..networks.meta import on_meta
from ..networks.names import EVERY_METHOD
from ..networks.shallow import shallow
from ..networks.timm_like import MobileNetV2 as TimmLike

# Counts of the published code's layouts: 380,072 and 415,464 are golden, the others worked out by
# hand from its tables of channels.
PUBLISHED = {
    "mobilenet_v2": ([2, 4, 7, 11, 14, 17], [5, 5, 5, 5, 5, 3], 380_072),
    "proxylessnas_mobile": ([2, 4, 8, 12, 16, 20], [5, 5, 5, 5, 3, 3], 415_464),
    "mobilenet_v3_large": ([2, 4, 7, 11, 13, 15], [5, 5, 5, 5, 3, 3], 338_280),
}


def sides(network: nn.Module) -> dict[str, ProgramModule]:
    modules = network.named_modules()
    return {name: module for name, module in modules if isinstance(module, ProgramModule)}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_layout(name: str) -> None:
    blocks, kernels, parameters = PUBLISHED[name]
    modules = sides(adapt(on_meta(name), RepNet()))
    assert list(modules) == [f"features.{block}.{BRANCH}" for block in blocks]
    assert [module.conv1.kernel_size[0] for module in modules.values()] == kernels
    assert sum(p.numel() for m in modules.values() for p in m.parameters()) == parameters
    assert [m.reads_image for m in modules.values()] == [True, *[False] * 5]
    assert [m.conv1.groups for m in modules.values()] == [1, *[2] * 5]


def test_published_layout_of_resnet50() -> None:
    """A quarter of the channels between, and the first module beside the max pooling."""
    modules = sides(adapt(on_meta("resnet50"), RepNet()))
    places = ["maxpool", "layer1.0", "layer2.0", "layer3.0", "layer4.0", "layer4.2"]
    assert list(modules) == [f"{place}.{BRANCH}" for place in places]
    assert [m.conv1.out_channels for m in modules.values()] == [64, 16, 64, 128, 256, 512]
    assert [m.conv1.kernel_size[0] for m in modules.values()] == [5, 5, 5, 5, 3, 3]
    assert sum(p.numel() for m in modules.values() for p in m.parameters()) == 8_698_720


def test_a_foreign_network_gets_the_layout_of_its_blocks() -> None:
    network = adapt(TimmLike(), RepNet())
    assert len(sides(network)) == 6
    assert network(torch.randn(2, 3, 64, 64)).shape == (2, 10)


@pytest.mark.parametrize("name", EVERY_METHOD)
def test_side_modules_fit_their_blocks(name: str) -> None:
    options = {} if name == "mcunet_5fps" else {"width": 0.35}
    network = adapt(shallow(create_network(name, classes=3, **options)), RepNet()).eval()
    before = shallow(create_network(name, classes=3, **options)).eval()
    before.load_state_dict(network.state_dict(), strict=False)
    for size in (32, 65):
        images = torch.randn(2, 3, size, size)
        # their last scale is 0: nothing changes
        torch.testing.assert_close(network(images), before(images), rtol=1e-4, atol=1e-4)
    assert anatomy(network) == anatomy(before)


def test_every_module_reads_what_the_modules_below_have_changed() -> None:
    network = adapt(create_network("mobilenet_v2", width=0.35, classes=3), RepNet()).eval()
    first, second, *_ = sides(network).values()
    seen: list[torch.Tensor] = []
    second.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    images = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        network(images)
        nn.init.ones_(first.norm2.weight)
        network(images)
    assert not torch.allclose(seen[0], seen[1])


def test_bias_knob() -> None:
    network = on_meta("mobilenet_v2", classes=10)
    plain, biased = RepNet().plan(network), RepNet(bias=True).plan(network)
    backbone = biased.trained - plain.trained
    assert backbone == {n for n, _ in network.named_parameters() if n.endswith(".bias")} - {
        "classifier.1.bias"
    }
    assert plain.trained < biased.trained
    assert plain.batch_norms == biased.batch_norms


def test_composition() -> None:
    network = create_network("mobilenet_v2", width=0.35, classes=3)
    both = adapt(network, RepNet() + BiasAndLast())
    assert {n for n, p in both.named_parameters() if p.requires_grad} == RepNet(True).plan(
        network
    ).trained
    with pytest.raises(MethodConflict, match=r"both add a branch to block features\.2"):
        adapt(network, RepNet() + TinyTL())


def test_a_copy_reads_its_own_images() -> None:
    network = adapt(create_network("mobilenet_v2", width=0.35, classes=3), RepNet()).eval()
    for module in sides(network).values():
        nn.init.ones_(module.norm2.weight)
    twin = copy.deepcopy(network)
    images = torch.randn(2, 1, 3, 64, 64)
    expected = network(images[1])
    network(images[0])
    assert torch.equal(twin(images[1]), expected)


def test_no_image_is_kept_after_the_forward_pass() -> None:
    network = adapt(create_network("mobilenet_v2", width=0.35, classes=3), RepNet()).eval()
    network(torch.randn(1, 3, 32, 32))
    for module in sides(network).values():
        assert not any(isinstance(value, torch.Tensor) for value in vars(module).values())


def test_bottlenecks_without_a_module_between_norm_and_blocks() -> None:
    network = create_network("resnet50", width=0.25, classes=3)
    with_activation = copy.deepcopy(network)
    del with_activation.maxpool, network.maxpool, network.relu
    adapted = adapt(with_activation, RepNet() + SignedBackward())
    assert "relu.branch.conv1.weight" in adapted.state_dict()
    with pytest.raises(PocketuneError, match="only the norm bn1 before them"):
        adapt(network, RepNet())


class Twice(nn.Module):
    """A network that runs its block twice."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU())
        self.block = InvertedResidual(8, 16, 8)
        self.classifier = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.block(self.block(self.stem(x))).mean((2, 3)))


def test_a_block_that_runs_twice_cannot_read_the_image() -> None:
    with pytest.raises(PocketuneError, match="beside block, which the network runs 2 times"):
        adapt(Twice(), RepNet())


def test_the_first_module_follows_the_images_that_a_network_takes() -> None:
    """Its stride is that of the block beside it, not one of images of 224 pixels."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.mix = nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.Linear(16, 16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.mix(self.conv(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.position = nn.Conv2d(3, 16, 2, 2), nn.Parameter(torch.zeros(16, 16, 16))
            self.blocks, self.head = nn.Sequential(Block(), Block(), Block()), nn.Linear(16, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.blocks(self.stem(x) + self.position).mean((2, 3)))

    (module,) = sides(adapt(Small(), RepNet())).values()
    assert module.reads_image and module.stride == 2
