"""TinyTL: its memory, by the rules of its public profiler, and its tables.

TinyTL: Reduce Activations, Not Trainable Parameters for Efficient On-Device Learning (Cai, Gan,
Zhu and Han, NeurIPS 2020).

`parameters + batch * peak`, where the peak is the largest sum of what a layer needs while it
runs, what earlier layers keep for the backward pass, and the shortcut of the running block.

The quirks of the convention, which are kept here and nowhere else:

* a convolution's output is divided by its groups, so depthwise outputs are almost free;
* trained parameters take 4 bytes, frozen ones 1; gradients and optimizer state take none;
* unless only the classifier is trained, the masks of all activations count, including those that
  no gradient reaches;
* a module that runs several times (the one ReLU of a torchvision ResNet block) is charged each
  time with the size of its previous call, and the first time with that of the last call;
* additions, means and other operations outside modules take nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

import torch
from torch import nn

from pocketune.methods import FullFineTune, TinyTL, adapt
from pocketune.methods.parts import classifier
from pocketune.networks.anatomy.modules import is_norm
from pocketune.papers.counts import (
    NOTHING,
    LayerMemory,
    PublishedMemory,
    at_peak,
    layer_by_layer,
    packed_bytes,
)
from pocketune.papers.rules import Rules
from pocketune.papers.tables import About, Cell, Row, register_table, shapes, training
from pocketune.papers.trace import ModuleCall, ModuleTrace, trace_modules
from pocketune.surgery import add_branches, parameters_under

MEMORY = "memory (MB)"
PROXYLESS = "proxylessnas_mobile"
CLASSES = 102

RULES: Rules[[ModuleCall, bool], LayerMemory] = Rules("tinytl")
"""`rule(call, masks)`: bytes for one sample; `masks`, whether activations keep theirs."""


@dataclass(frozen=True)
class TinyTLMemory:
    """TinyTL's convention.

    Attributes:
        shortcuts: Count the input of blocks with an identity shortcut while they run. The paper's
            figure for ResNet-50 comes out without them.
        masks: Count the masks of activations; by default, unless only the classifier is trained.
    """

    name: ClassVar[str] = "tinytl"
    shortcuts: bool = True
    masks: bool | None = None

    def measure(self, trace: ModuleTrace, batch: int = 8) -> PublishedMemory:
        """Memory of a step of `batch` samples."""
        masks = trains_more_than_classifier(trace) if self.masks is None else self.masks
        costs = ((call, rule(call, masks)) for call, rule in RULES.of(shifted(trace.calls)))
        return at_peak(
            self.name,
            layer_by_layer(costs, shortcuts=self.shortcuts),
            parameter_bytes=parameter_bytes(trace),
            batch=batch,
        )


def parameter_bytes(trace: ModuleTrace) -> int:
    """4 bytes a trained parameter and 1 a frozen one; statistics take none."""
    return 4 * trace.count_parameters(trained=True) + trace.count_parameters(trained=False)


def trains_more_than_classifier(trace: ModuleTrace) -> bool:
    """Whether a layer outside the classifier has trained parameters."""
    return any(call.trained and call.path not in trace.classifier for call in trace.calls)


def shifted(calls: tuple[ModuleCall, ...]) -> Iterator[ModuleCall]:
    """The calls, each with the shapes of the same module's call before it."""
    last = {call.module: call for call in calls}
    for call in calls:
        before, last[call.module] = last[call.module], call
        yield replace(call, inputs=before.inputs, outputs=before.outputs)


@RULES.rule(nn.Conv2d)
def _conv(call: ModuleCall, masks: bool) -> LayerMemory:
    assert isinstance(call.module, nn.Conv2d)
    taken, given = 4 * prod(call.input), 4 * prod(call.output)
    return LayerMemory(taken if call.weight_trained else 0, taken + given // call.module.groups)


@RULES.rule(nn.Linear)
def _linear(call: ModuleCall, masks: bool) -> LayerMemory:
    taken, given = 4 * prod(call.input), 4 * prod(call.output)
    return LayerMemory(taken if call.weight_trained else 0, taken + given)


@RULES.rule(nn.BatchNorm2d, nn.GroupNorm)
def _norm(call: ModuleCall, masks: bool) -> LayerMemory:
    taken = 4 * prod(call.input)
    return LayerMemory(taken if call.weight_trained else 0, taken)


@RULES.rule(nn.ReLU, nn.ReLU6)
def _mask(call: ModuleCall, masks: bool) -> LayerMemory:
    count = prod(call.input)
    return LayerMemory(packed_bytes(count, 1) if masks else 0, 4 * count)


@RULES.rule(nn.Hardswish, nn.Hardsigmoid, nn.Sigmoid, nn.Tanh)
def keep_input(call: ModuleCall, masks: bool) -> LayerMemory:
    """The rule of smooth activations: the mask is the whole input."""
    taken = 4 * prod(call.input)
    return LayerMemory(taken if masks else 0, taken)


@RULES.rule(nn.Identity)
def _free(call: ModuleCall, masks: bool) -> LayerMemory:
    return NOTHING


def _row(
    label: str,
    paper: float,
    network: nn.Module,
    convention: TinyTLMemory | None = None,
    size: int = 224,
    batch: int = 8,
) -> Row:
    """Memory, at batch 8 unless the label says otherwise."""
    seen = trace_modules(network, (3, size, size))
    ours = (convention or TinyTLMemory()).measure(seen, batch).total_bytes
    return Row(label, {MEMORY: Cell(paper, ours / 1e6)})


@register_table(
    About(
        "tinytl-2",
        "TinyTL, table 2: ProxylessNAS-Mobile, 102 classes, batch 8",
        (MEMORY,),
        (
            "Every row has the 19 lite residual modules, trained or not.",
            'Figure 5 prints "around 16 MB" for one image, and not what they are made of.',
        ),
    )
)
def table_2() -> Iterator[Row]:
    """What is trained, by the paper's names."""
    network = shapes(PROXYLESS, classes=CLASSES)
    with torch.device("meta"):
        add_branches(network, TinyTL().plan(network).branches)
    complete = adapt(network, TinyTL())
    norms = [name for name, module in network.named_modules() if is_norm(module)]
    last = classifier(network)
    scales_and_shifts = last | parameters_under(network, norms)
    everything = [name for name, _ in network.named_parameters()]
    yield _row("FT-Last", 31, training(network, last))
    yield _row("TinyTL-B", 32, adapt(network, TinyTL(lite_residual=False)))
    yield _row("TinyTL-L", 37, adapt(network, TinyTL(bias=False)))
    yield _row("TinyTL-L+B", 37, complete)
    yield _row("TinyTL-L+B, 320 px", 65, complete, size=320)
    yield _row("TinyTL-L+B, batch 1 (figure 5)", 16, complete, batch=1)
    yield _row("FT-Norm+Last", 192, training(network, scales_and_shifts))
    yield _row("FT-Full", 391, training(network, everything))


@register_table(
    About(
        "tinytl-3",
        "TinyTL, table 3: other networks, 102 classes, batch 8",
        (MEMORY,),
        ("ResNet-50 comes out as printed if the shortcuts are not counted.",),
    )
)
def table_3() -> Iterator[Row]:
    """The rows whose networks are available here."""
    full = FullFineTune()
    wide = shapes("mobilenet_v2", classes=CLASSES, width=1.4)
    yield _row("FT-Full MobileNetV2-1.4", 644, adapt(wide, full))
    resnet = adapt(shapes("resnet50", classes=CLASSES), full)
    yield _row("FT-Full ResNet-50", 802, resnet, TinyTLMemory(shortcuts=False))
    tiny = adapt(shapes(PROXYLESS, classes=CLASSES), TinyTL())
    yield _row("TinyTL-L+B ProxylessNAS, 320 px", 65, tiny, size=320)
