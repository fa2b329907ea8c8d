"""Rep-Net: a small side network that reprograms the features of a frozen one."""

from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from math import ceil

from torch import nn

from pocketune.accounting import Call, Walk, walk
from pocketune.layers import ProgramModule
from pocketune.methods.method import Method
from pocketune.methods.plan import Plan
from pocketune.methods.registry import register_method
from pocketune.networks import Block, anatomy
from pocketune.surgery import BRANCH, Factory, parameters_under

SIZE = 224
"""Side of the images for which the published layouts are made."""

SMALL = 7
"""Side of maps that are no larger, when pooled, than a kernel of 5: it is 3 there."""

LARGER_KERNELS = {"mobilenet_v2": "features.14"}
"""Where the published layout has a kernel of 5 all the same."""


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
        branches = _modules(network)
        trained = set(parameters_under(network, anatomy(network).classifier))
        if self.bias:
            names = (name for name, _ in network.named_parameters())
            trained |= {name for name in names if name.split(".")[-1] == "bias"}
        paths = [f"{place}.{BRANCH}" for place in branches]
        trained |= {f"{path}.{name}" for path in paths for name in ProgramModule.PARAMETERS}
        norms = frozenset(f"{path}.{name}" for path in paths for name in ProgramModule.NORMS)
        return Plan(frozenset(trained), norms, branches=branches)


def _modules(network: nn.Module) -> dict[str, Factory]:
    """What makes each side module, by the path of what it stands beside."""
    followed = walk(network, (3, SIZE, SIZE))
    blocks = anatomy(network).blocks
    calls = {call.path: call for call in followed.calls}
    listed = [
        calls[block.name]
        for number, block in enumerate(blocks)
        if block is blocks[-1]
        or (_starts_stage(calls[block.name]) and (number or not _is_thin(block)))
    ]
    bottlenecks = blocks[0].kind == "bottleneck"
    reader = _stem(followed) if bottlenecks else listed.pop(0)
    makers = [_reads_image(followed.calls[0], reader, as_wide=bottlenecks)]
    makers += [_reads_block(network, call, widening=4 if bottlenecks else 1) for call in listed]
    places = [call.path for call in (reader, *listed)]
    return {place: partial(_make, maker) for place, maker in zip(places, makers, strict=True)}


def _reads_image(first: Call, beside: Call, *, as_wide: bool) -> partial[ProgramModule]:
    """The module whose input is what the first layer of the network is given."""
    image, outputs = first.input, beside.output[1]
    stride = ceil(image[2] / beside.output[2])
    middle = outputs if as_wide else _next_8(image[1])
    return partial(ProgramModule, image[1], middle, outputs, stride=stride, reads_image=True)


def _reads_block(network: nn.Module, beside: Call, *, widening: int) -> partial[ProgramModule]:
    """A module whose input is the block's own."""
    inputs, outputs, side = beside.input[1], beside.output[1], beside.output[2]
    name: str = getattr(getattr(network, "config", None), "name", "")
    kernel = 5 if side > SMALL or LARGER_KERNELS.get(name) == beside.path else 3
    stride = ceil(beside.input[2] / side)
    middle = _next_8(inputs // widening)
    return partial(ProgramModule, inputs, middle, outputs, kernel=kernel, stride=stride)


def _make(maker: partial[ProgramModule], _: nn.Module) -> nn.Module:
    return maker()


def _starts_stage(block: Call) -> bool:
    return block.input[1:] != block.output[1:]


def _is_thin(block: Block) -> bool:
    """To the published layouts, a first block without an expansion is part of the stem."""
    return block.kind == "inverted_residual" and block.layer("expand") is None


def _stem(followed: Walk) -> Call:
    """The last call before the blocks."""
    return list(takewhile(lambda call: call.block is None, followed.calls))[-1]


def _next_8(channels: int) -> int:
    return ceil(channels / 8) * 8
