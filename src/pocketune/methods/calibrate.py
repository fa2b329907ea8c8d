"""Calibration: the classifier is trained, and running statistics follow the photos."""

from dataclasses import dataclass

from torch import nn

from pocketune.methods.method import Method
from pocketune.methods.parts import classifier
from pocketune.methods.plan import Plan
from pocketune.methods.registry import register_method
from pocketune.surgery import batch_norms


@register_method("calibrate")
@dataclass(frozen=True)
class Calibrate(Method):
    """Train the classifier, with the batch's statistics in every batch norm.

    All running statistics move to those of the photos; weights and biases of norms stay as they
    are. Gradient Filtering (Yang, Li and Marculescu, CVPR 2023) adapts a network to other classes
    in this way before it compares methods (section 5.3).
    """

    def plan(self, network: nn.Module) -> Plan:
        """The classifier's parameters, and the statistics of all batch norms."""
        return Plan(classifier(network), frozenset(batch_norms(network)))
