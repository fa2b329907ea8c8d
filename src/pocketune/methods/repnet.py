"""Rep-Net: a small side network that reprograms the features of a frozen one."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from math import ceil, prod

from torch import nn

from pocketune.errors import PocketuneError
from pocketune.layers import ProgramModule
from pocketune.methods.method import Method
from pocketune.methods.parts import biases, parameters_of_branches, planned_branches
from pocketune.methods.plan import Plan
from pocketune.methods.registry import register_method
from pocketune.networks import Anatomy, Factory, about, anatomy
from pocketune.networks.anatomy.modules import is_convolution, is_norm, main_modules
from pocketune.networks.registry import large_side_kernels
from pocketune.surgery import batch_norms, parameters_under

SIZE = 224
"""Side of the images for which the published layouts are made."""

SMALL = 7
"""Side of maps that are no larger, when pooled, than a kernel of 5: it is 3 there."""


@register_method("repnet")
@dataclass(frozen=True)
class RepNet(Method):
    """Train a side network of small modules beside the blocks where stages begin.

    Rep-Net: Efficient On-Device Learning via Feature Reprogramming (Yang, Rakin and Fan, CVPR
    2022). Each listed block computes `block(x) + module(x)` and the sum goes on through the
    frozen network, so that either side reads what the other has made; the first module reads the
    pooled image. The classifier is trained with them. Batch norms of the modules use the batch's
    statistics, those of the frozen network the running ones.

    Modules stand beside each block that changes the number of channels or the size of the maps,
    but for a first one without an expansion, and beside the last block: in MobileNetV2 blocks 2,
    4, 7, 11, 14 and 17, as published, and so for ProxylessNAS-Mobile and MobileNetV3-Large. In
    networks of bottleneck blocks they have a quarter of the channels, and the one that reads the
    image stands beside what comes before the blocks, as published for ResNet-50.

    Attributes:
        bias: also train every bias of the network, the shifts of norms among them: the paper's
            choice for ProxylessNAS-Mobile and ResNet-50.
    """

    bias: bool = False

    def plan(self, network: nn.Module) -> Plan:
        """Side modules and the classifier, and biases where they are asked for."""
        body = anatomy(network)
        branches = _modules(network, body)
        modules = planned_branches(network, branches)
        trained = parameters_under(network, body.classifier)
        trained |= parameters_of_branches(modules)
        if self.bias:
            trained |= biases(network)
        norms = frozenset(f"{path}.{n}" for path, m in modules.items() for n in batch_norms(m))
        return Plan(trained, norms, branches=branches)


@dataclass(frozen=True)
class _Place:
    """Something that a module can stand beside.

    Attributes:
        path: of the block, or of the last module before the blocks.
        inputs: channels that go in.
        outputs: channels that come out.
        stride: how many times smaller than its input its output is.
        side: of its output, in pixels, for images of `SIZE`.
    """

    path: str
    inputs: int
    outputs: int
    stride: int
    side: int


def _modules(network: nn.Module, body: Anatomy) -> dict[str, Factory]:
    """What makes each side module, by the path of what it stands beside."""
    stem, *places = _places(network, body)
    blocks = body.blocks
    bottlenecks = blocks[0].is_bottleneck
    if bottlenecks and is_norm(network.get_submodule(stem.path)):
        raise PocketuneError(
            f"RepNet adds to what the blocks are given, and finds only the norm {stem.path} before "
            "them: let the activation behind it be a module of the network, as nn.ReLU is"
        )
    # to the published layouts, a first block without an expansion is part of the stem
    listed = [
        place
        for place, block in zip(places, blocks, strict=True)
        if block is blocks[-1]
        or (_starts_stage(place) and (block is not blocks[0] or not block.lacks_expansion))
    ]
    reader = stem if bottlenecks else listed.pop(0)
    makers = {reader.path: _reads_image(stem.inputs, reader, as_wide=bottlenecks)}
    for place in listed:
        makers[place.path] = _reads_block(network, place, widening=4 if bottlenecks else 1)
    return {path: partial(_make, maker) for path, maker in makers.items()}


def _places(network: nn.Module, body: Anatomy) -> Iterator[_Place]:
    """What comes before the blocks, and each block."""
    before = takewhile(lambda item: item[0] != body.blocks[0].name, main_modules(network))
    leaves = [(path, module) for path, module in before if next(module.children(), None) is None]
    stride, side = _stride(module for _, module in leaves), SIZE
    stem = [module for _, module in leaves if is_convolution(module)]
    side = ceil(side / stride)
    yield _Place(leaves[-1][0], stem[0].in_channels, stem[-1].out_channels, stride, side)
    for block in body.blocks:
        convolutions = [network.get_submodule(layer.conv) for layer in block.main]
        first, last = convolutions[0], convolutions[-1]
        assert is_convolution(first)
        assert is_convolution(last)
        stride = _stride(convolutions)
        side = ceil(side / stride)
        yield _Place(block.name, first.in_channels, last.out_channels, stride, side)


def _stride(modules: Iterable[nn.Module]) -> int:
    """How many times smaller convolutions and poolings make an image, along one side."""
    strides = (
        module.stride
        for module in modules
        if is_convolution(module) or isinstance(module, (nn.MaxPool2d, nn.AvgPool2d))
    )
    return prod(stride if isinstance(stride, int) else stride[0] for stride in strides)


def _reads_image(channels: int, beside: _Place, *, as_wide: bool) -> partial[ProgramModule]:
    """The module whose input is the image that the network is given."""
    middle = beside.outputs if as_wide else _next_8(channels)
    stride = SIZE // beside.side
    return partial(ProgramModule, channels, middle, beside.outputs, stride=stride, reads_image=True)


def _reads_block(network: nn.Module, beside: _Place, *, widening: int) -> partial[ProgramModule]:
    """A module whose input is the block's own."""
    config = about(network).config
    large = beside.path in large_side_kernels(config.name if config else "")
    kernel = 5 if beside.side > SMALL or large else 3
    middle = _next_8(beside.inputs // widening)
    return partial(
        ProgramModule,
        beside.inputs,
        middle,
        beside.outputs,
        kernel=kernel,
        stride=beside.stride,
    )


def _make(maker: partial[ProgramModule], _: nn.Module) -> nn.Module:
    return maker()


def _starts_stage(block: _Place) -> bool:
    return block.inputs != block.outputs or block.stride > 1


def _next_8(channels: int) -> int:
    return ceil(channels / 8) * 8
