"""MobileTL's stored activations (Chiang et al., AAAI 2023, table 1, figures 1 and 4).

What every sample keeps for the backward pass, as in the paper's total memory, and one thing more:
h-sigmoid keeps its input. (Table 1 needs it; tables 3 to 5 come out without.)
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from pocketune.papers.conventions import mobiletl_memory
from pocketune.papers.conventions.memory import Memory, PublishedMemory, all_saved, along, elements
from pocketune.papers.rules import Rules
from pocketune.papers.trace import Call, Walk

RULES: Rules[[Call, bool], Memory] = Rules("mobiletl-stored", base=mobiletl_memory.RULES)
"""`rule(call, masks)`: bytes for one sample, of which the saved ones count."""


@dataclass(frozen=True)
class MobileTLStored:
    """MobileTL's convention for stored activations."""

    name: ClassVar[str] = "mobiletl-stored"

    def measure(self, walk: Walk, batch: int = 8) -> PublishedMemory:
        """Stored activations of `batch` samples."""
        costs = ((call, rule(call, call.gradient_in)) for call, rule in RULES.of(walk.calls))
        return all_saved(self.name, along(costs), batch=batch)


@RULES.rule(nn.Hardsigmoid)
def _hard_sigmoid(call: Call, masks: bool) -> Memory:
    taken = 4 * elements(call.input)
    return Memory(taken if masks else 0, taken)
