"""TinyTL's memory (Cai et al., NeurIPS 2020; the rules of its public profiler).

`parameters + batch * peak`, where the peak is the largest sum of what a layer needs while it
runs, what earlier layers keep for the backward pass, and the shortcut of the running block.

Its quirks, kept here and nowhere else:

* a convolution's output is divided by its groups, so that depthwise outputs are all but free;
* trained parameters take 4 bytes, frozen ones 1; gradients and optimizer state take none;
* unless only the classifier is trained, the masks of all activations count, also of those that no
  gradient reaches;
* a module that runs several times (torchvision's one ReLU in a ResNet block) is charged, each
  time, with the size of the time before, the first time with that of the last;
* additions, means and what else is no module take nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import nn

from pocketune.papers.conventions.memory import (
    NOTHING,
    Memory,
    PublishedMemory,
    along,
    at_peak,
    bits,
    elements,
)
from pocketune.papers.rules import Rules
from pocketune.papers.trace import Call, Walk

RULES: Rules[[Call, bool], Memory] = Rules("tinytl")
"""`rule(call, masks)`: bytes for one sample; `masks`, whether activations keep theirs."""


@dataclass(frozen=True)
class TinyTLMemory:
    """TinyTL's convention.

    Attributes:
        shortcuts: count the input of blocks with an identity shortcut while they run. The paper's
            figure for ResNet-50 comes out without.
        masks: count the masks of activations; by default, unless the classifier alone is trained.
    """

    name: ClassVar[str] = "tinytl"
    shortcuts: bool = True
    masks: bool | None = None

    def measure(self, walk: Walk, batch: int = 8) -> PublishedMemory:
        """Memory of a step of `batch` samples."""
        masks = trains_more_than_classifier(walk) if self.masks is None else self.masks
        costs = ((call, rule(call, masks)) for call, rule in RULES.of(shifted(walk.calls)))
        return at_peak(
            self.name,
            along(costs, shortcuts=self.shortcuts),
            parameter_bytes=parameter_bytes(walk),
            batch=batch,
        )


def parameter_bytes(walk: Walk) -> int:
    """4 bytes a trained parameter and 1 a frozen one; statistics take none."""
    return 4 * walk.count_parameters(trained=True) + walk.count_parameters(trained=False)


def trains_more_than_classifier(walk: Walk) -> bool:
    """Whether a layer outside the classifier has trained parameters."""
    return any(call.trained and call.path not in walk.classifier for call in walk.calls)


def shifted(calls: tuple[Call, ...]) -> Iterator[Call]:
    """The calls, each with the shapes of the same module's call before it."""
    last = {call.module: call for call in calls}
    for call in calls:
        before, last[call.module] = last[call.module], call
        yield replace(call, inputs=before.inputs, outputs=before.outputs)


@RULES.rule(nn.Conv2d)
def _conv(call: Call, masks: bool) -> Memory:
    assert isinstance(call.module, nn.Conv2d)
    taken, given = 4 * elements(call.input), 4 * elements(call.output)
    return Memory(taken if call.weight_trained else 0, taken + given // call.module.groups)


@RULES.rule(nn.Linear)
def _linear(call: Call, masks: bool) -> Memory:
    taken, given = 4 * elements(call.input), 4 * elements(call.output)
    return Memory(taken if call.weight_trained else 0, taken + given)


@RULES.rule(nn.BatchNorm2d, nn.GroupNorm)
def _norm(call: Call, masks: bool) -> Memory:
    taken = 4 * elements(call.input)
    return Memory(taken if call.weight_trained else 0, taken)


@RULES.rule(nn.ReLU, nn.ReLU6)
def _mask(call: Call, masks: bool) -> Memory:
    count = elements(call.input)
    return Memory(bits(count, 1) if masks else 0, 4 * count)


@RULES.rule(nn.Hardswish, nn.Hardsigmoid, nn.Sigmoid, nn.Tanh)
def _smooth(call: Call, masks: bool) -> Memory:
    taken = 4 * elements(call.input)
    return Memory(taken if masks else 0, taken)


@RULES.rule(nn.Identity)
def _free(call: Call, masks: bool) -> Memory:
    return NOTHING
