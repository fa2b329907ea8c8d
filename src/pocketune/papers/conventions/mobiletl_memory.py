"""MobileTL's memory (Chiang et al., AAAI 2023, tables 3 to 5).

The paper has no public code: the rules are inferred from its figures, which all but three of them
then meet to the printed digit. They are TinyTL's with these changes:

* a convolution or linear layer with a trained weight needs 4 bytes a weight beside its input and
  output, for every sample ("temporary memory for matrix multiplication");
* only activations that a gradient reaches keep anything: ReLU6 2 bits (two comparisons), ReLU and
  MobileTL's own 1 bit, h-swish its input, h-sigmoid nothing;
* squeeze-excite keeps the maps that it scales.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from pocketune.networks.architectures.parts import SqueezeExcite
from pocketune.papers.conventions import tinytl
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

RULES: Rules[[Call, bool], Memory] = Rules("mobiletl", base=tinytl.RULES)
"""`rule(call, masks)`: bytes for one sample; `masks`, whether a gradient reaches the layer."""


@dataclass(frozen=True)
class MobileTLMemory:
    """MobileTL's convention for the memory of a step."""

    name: ClassVar[str] = "mobiletl"

    def measure(self, walk: Walk, batch: int = 8) -> PublishedMemory:
        """Memory of a step of `batch` samples."""
        costs = ((call, rule(call, call.gradient_in)) for call, rule in RULES.of(walk.calls))
        return at_peak(
            self.name, along(costs), parameter_bytes=tinytl.parameter_bytes(walk), batch=batch
        )


@RULES.rule(nn.Conv2d, nn.Linear)
def _matrix(call: Call, masks: bool) -> Memory:
    assert isinstance(call.module, nn.Conv2d | nn.Linear)
    given = 4 * elements(call.output) // getattr(call.module, "groups", 1)
    taken = 4 * elements(call.input)
    if not call.weight_trained:
        return Memory(0, taken + given)
    return Memory(taken, taken + given + 4 * call.module.weight.numel())


@RULES.rule(nn.ReLU6)
def _two_comparisons(call: Call, masks: bool) -> Memory:
    count = elements(call.input)
    return Memory(bits(count, 2) if masks else 0, 4 * count)


@RULES.rule(nn.Hardsigmoid)
def _hard_sigmoid(call: Call, masks: bool) -> Memory:
    return Memory(0, 4 * elements(call.input))


@RULES.rule(SqueezeExcite)
def _scaled_maps(call: Call, masks: bool) -> Memory:
    return Memory(4 * elements(call.input), 0) if call.gradient_out else NOTHING
