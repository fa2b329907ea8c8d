"""What a step of MobileTL keeps for its backward pass is what it must, to the byte."""

from math import prod

import pytest
import torch
from torch import Tensor, nn

from pocketune.methods import BiasAndLast, Method, MobileTL, adapt
from pocketune.networks import anatomy
from pocketune.networks.anatomy.blocks import Block
from pocketune.weights import create_network

from ..layers.kept import kept_bytes

BATCH, SIZE = 4, 64
Shapes = dict[str, tuple[int, ...]]


def output_shapes(network: nn.Module, images: Tensor) -> Shapes:
    shapes: Shapes = {}
    for name, module in network.named_modules():
        module.register_forward_hook(lambda _m, _x, y, name=name: shapes.update({name: y.shape}))
    network(images)
    return shapes


def adapted(name: str, method: Method) -> nn.Module:
    torch.manual_seed(0)
    network = adapt(create_network(name, classes=3, width=0.35), method).train()
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.eval()
    return network


def floats(shape: tuple[int, ...]) -> int:
    return 4 * prod(shape)


def bits(shape: tuple[int, ...]) -> int:
    return -(-prod(shape) // 8)


def block_bytes(block: Block, shapes: Shapes, block_input: tuple[int, ...]) -> int:
    """Inputs of convolutions, a bit an activation, the projection norm's input."""
    total = 0
    for layer in block.layers:
        total += floats(block_input)  # the convolution's own input
        block_input = shapes[layer.conv]
        channels = block_input[1]
        if layer.role == "project":
            total += floats(block_input) + 2 * 4 * channels  # mean and deviation of the batch
        else:
            total += 4 * channels + bits(block_input)  # the scale alone, and the mask
        if layer.role == "depthwise" and block.squeeze_excite:
            total += excite_bytes(block_input, shapes[f"{block.squeeze_excite}.fc1"])
    return total


def excite_bytes(maps: tuple[int, ...], squeezed: tuple[int, ...]) -> int:
    """The maps that are scaled; means, squeezed numbers, gates before and after the sigmoid."""
    return floats(maps) + 3 * floats(maps[:2]) + floats(squeezed)


def fusion_bytes(network: nn.Module, shapes: Shapes, block_output: tuple[int, ...]) -> int:
    """All exact: ReLU6 takes a bit and h-swish its input; linear layers take theirs."""
    parts = anatomy(network)
    (layer,) = parts.feature_fusion
    maps = shapes[layer.conv]
    total = floats(block_output) + floats(maps) + 2 * 4 * maps[1]
    swish = isinstance(network.get_submodule(layer.activation), nn.Hardswish)
    total += floats(maps) if swish else bits(maps)
    total += floats(maps[:2])
    for hidden in parts.classifier[:-1]:
        total += 2 * floats(shapes[hidden])  # h-swish keeps its input, the next layer its own
    return total


def expected_bytes(network: nn.Module, images: Tensor, blocks: int) -> int:
    """What a step of MobileTL must keep of all from the last `blocks` blocks on."""
    shapes = output_shapes(network, images)
    own = anatomy(network).blocks
    total = fusion_bytes(network, shapes, shapes[own[-1].name])
    for before, block in zip(own[-blocks - 1 :], own[-blocks:], strict=False):
        total += block_bytes(block, shapes, shapes[before.name])
    return total


@pytest.mark.parametrize("name", ["mobilenet_v2", "proxylessnas_mobile", "mobilenet_v3_small"])
@pytest.mark.parametrize("blocks", [1, 3])
def test_kept_for_the_backward_pass(name: str, blocks: int) -> None:
    network = adapted(name, MobileTL(blocks=blocks))
    images = torch.randn(BATCH, 3, SIZE, SIZE)
    assert kept_bytes(network, images) == expected_bytes(network, images, blocks)


def test_without_squeeze_excite_and_swish_only_masks_stay() -> None:
    images = torch.randn(BATCH, 3, SIZE, SIZE)
    lean = adapted("mobilenet_v3_small", MobileTL(squeeze_excite=False, hard_swish=False))
    swish = adapted("mobilenet_v3_small", MobileTL(squeeze_excite=False))
    exact = adapted("mobilenet_v3_small", MobileTL(squeeze_excite=False, signed=False))
    assert kept_bytes(lean, images) == kept_bytes(swish, images) < kept_bytes(exact, images)


def test_frozen_convolutions_below_trained_biases_keep_nothing() -> None:
    """What is left are the activations' own, and the classifier's input."""
    network = adapted("mobilenet_v2", BiasAndLast())
    images = torch.randn(BATCH, 3, SIZE, SIZE)
    kept = kept_bytes(network, images)
    shapes = output_shapes(network, images)
    relus = [n for n, m in network.named_modules() if isinstance(m, nn.ReLU6)]
    norms = [n for n in shapes if hasattr(network.get_submodule(n), "running_mean")]
    expected = sum(floats(shapes[name]) for name in relus)  # an ordinary ReLU6's input
    expected += sum(4 * shapes[name][1] for name in norms[1:])  # scales; the first needs none
    assert kept == expected + floats(shapes[relus[-1]][:2])
