"""Rep-Net: a small side network that reprograms the features of a frozen one."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from math import ceil, prod

from torch import nn

from pocketune.errors import PocketuneError, check_truth
from pocketune.layers import ProgramModule
from pocketune.methods.method import Method
from pocketune.methods.parts import (
    biases,
    block_maps,
    parameters_of_branches,
    planned_branches,
    require_channels_first,
)
from pocketune.methods.plan import Plan
from pocketune.methods.registry import register_method
from pocketune.networks import Anatomy, Factory, about, anatomy
from pocketune.networks.anatomy.modules import is_convolution, is_norm, main_modules
from pocketune.networks.anatomy.trunk import Call, calls_of
from pocketune.surgery import batch_norms, parameters_under

SIZE = 224
"""Side of the images of the published layouts, and of a run where a network takes it."""

SMALL = 7
"""Side of maps that are smaller than a kernel of 5 when pooled; the kernel is 3 there."""

LARGE_KERNELS = (("mobilenet_v2", "features.14"),)
"""Network and block with a kernel of 5 in the published layout all the same."""


@register_method("repnet")
@dataclass(frozen=True)
class RepNet(Method):
    """Train a side network of small modules at the blocks where stages begin.

    Rep-Net: Efficient On-Device Learning via Feature Reprogramming (Yang, Rakin and Fan, CVPR
    2022). Each of these blocks computes `block(x) + module(x)`. The sum continues through the
    frozen network, so each side reads the other's output; the first module reads the pooled
    image. The classifier is trained with them. Batch norms of the modules use the batch's
    statistics, those of the frozen network their running statistics.

    A module is attached to each block that changes the number of channels or the size of the maps,
    or that follows a layer which does, except a first block without an expansion, and to the last
    block. In MobileNetV2 these are blocks 2, 4, 7, 11, 14 and 17, as published;
    ProxylessNAS-Mobile and MobileNetV3-Large match their published layouts, too. In networks of
    bottleneck blocks, modules have a quarter of the channels, and the one that reads the image is
    attached to the stem, as published for ResNet-50.

    Attributes:
        bias: Also train every bias of the network, including those of norms: the paper's choice
            for ProxylessNAS-Mobile and ResNet-50.
    """

    bias: bool = False

    def __post_init__(self) -> None:
        check_truth(bias=self.bias)

    def plan(self, network: nn.Module) -> Plan:
        """Side modules, the classifier, and biases if requested."""
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
    """A place that a side module can be attached to.

    Attributes:
        path: Path of the block, or of the last module before the blocks.
        inputs: Input channels.
        outputs: Output channels.
        stride: How many times smaller the output is than the input, along one side.
        side: Side of the output in pixels, for images of the side of the run.
    """

    path: str
    inputs: int
    outputs: int
    stride: int
    side: int


def _modules(network: nn.Module, body: Anatomy) -> dict[str, Factory]:
    """Factories of the side modules, by the path that each is attached to."""
    require_channels_first(network, body.blocks)
    calls = calls_of(network)
    # of these images the anatomy knows the maps
    image = next(iter(calls.values())).given[0].shape[2] if calls else SIZE
    stem, *places = _places(network, body, image)
    blocks = body.blocks
    bottlenecks = blocks[0].is_bottleneck
    if bottlenecks and is_norm(network.get_submodule(stem.path)):
        raise PocketuneError(
            f"RepNet adds to the input of the blocks, and finds only the norm {stem.path} before "
            "them; make the activation after it a module of the network, such as nn.ReLU"
        )
    # in the published layouts, a first block without an expansion belongs to the stem
    listed = [
        place
        for place, block in zip(places, blocks, strict=True)
        if block is blocks[-1]
        or (
            (_starts_stage(place) or block.entry)
            and (block is not blocks[0] or not block.lacks_expansion)
        )
    ]
    reader = stem if bottlenecks else listed.pop(0)
    _require_one_call(reader.path, calls)
    stride = image // reader.side
    factories = {reader.path: _reads_image(stem.inputs, reader, stride, as_wide=bottlenecks)}
    for place in listed:
        factories[place.path] = _reads_block(network, place, widening=4 if bottlenecks else 1)
    return factories


def _require_one_call(path: str, calls: dict[str, Call]) -> None:
    """Check that a network calls a module once an image, as far as a run has shown it."""
    call = calls.get(path)
    if call is not None and call.times > 1:
        raise PocketuneError(
            f"RepNet's first module reads the image beside {path}, which the network runs "
            f"{call.times} times an image; give each run a block of its own, or use TinyTL() or "
            "LoRA()"
        )


def _places(network: nn.Module, body: Anatomy, image: int) -> Iterator[_Place]:
    """The stem, and each block, for images of the side `image`."""
    before = takewhile(lambda item: item[0] != body.blocks[0].name, main_modules(network))
    leaves = [(path, module) for path, module in before if next(module.children(), None) is None]
    stride, side = _stride(module for _, module in leaves), image
    stem = [module for _, module in leaves if is_convolution(module)]
    side = ceil(side / stride)
    if stem:
        yield _Place(leaves[-1][0], stem[0].in_channels, stem[-1].out_channels, stride, side)
    else:  # the first block reads the image
        channels = block_maps(network, body.blocks[0]).inputs
        yield _Place("", channels, channels, 1, image)
    for block in body.blocks:
        inputs, outputs, stride = block_maps(network, block)
        side = ceil(side / stride) if block.features is None else block.features[1][1]
        yield _Place(block.name, inputs, outputs, stride, side)


def _stride(modules: Iterable[nn.Module]) -> int:
    """The product of the strides of convolutions and poolings, along one side."""
    strides = (
        module.stride
        for module in modules
        if is_convolution(module) or isinstance(module, (nn.MaxPool2d, nn.AvgPool2d))
    )
    return prod(stride if isinstance(stride, int) else stride[0] for stride in strides)


def _reads_image(channels: int, beside: _Place, stride: int, *, as_wide: bool) -> Factory:
    """The module that reads the network's image, whose side is `stride` times the output's."""
    middle = beside.outputs if as_wide else _next_8(channels)
    return lambda _: ProgramModule(
        channels, middle, beside.outputs, stride=stride, reads_image=True
    )


def _reads_block(network: nn.Module, beside: _Place, *, widening: int) -> Factory:
    """A module that reads the block's input."""
    config = about(network).config
    is_exception = config is not None and (config.name, beside.path) in LARGE_KERNELS
    kernel = 5 if beside.side > SMALL or is_exception else 3
    middle = _next_8(beside.inputs // widening)
    return lambda _: ProgramModule(
        beside.inputs, middle, beside.outputs, kernel=kernel, stride=beside.stride
    )


def _starts_stage(block: _Place) -> bool:
    return block.inputs != block.outputs or block.stride > 1


def _next_8(channels: int) -> int:
    return ceil(channels / 8) * 8
