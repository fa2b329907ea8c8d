"""Activations differentiated by the sign of their input alone."""

from dataclasses import dataclass, replace

from torch import nn

from pocketune.errors import PocketuneError
from pocketune.methods.method import Method
from pocketune.methods.plan import Plan
from pocketune.methods.registry import register_method
from pocketune.networks import anatomy
from pocketune.surgery import signed_activations, signed_after


@register_method("signed")
@dataclass(frozen=True)
class SignedBackward(Method):
    """Approximate the gradient of activations by one bit an element, for another method.

    ReLU, ReLU6 and h-swish in every block that the gradient passes through let it pass where
    their input was not negative (MobileTL, Chiang et al., AAAI 2023); so does the stem, where it
    is trained. Head and classifier stay exact. By itself this trains nothing: add it to a method,
    as in `TopBlocks(blocks=3) + SignedBackward()`.
    """

    def plan(self, network: nn.Module) -> Plan:  # noqa: ARG002
        """Nothing; it all depends on what the other methods train."""
        return Plan(frozenset(), frozenset())

    def refine(self, plan: Plan, network: nn.Module) -> Plan:
        """Replace the activations from the first part that is trained.

        What another method has put in the place of one becomes signed as well, if it can.

        Raises:
            PocketuneError: if the gradient passes no activation that can be approximated.
        """
        if not plan.trained:  # refused by whoever completes the plan
            return plan
        parts = anatomy(network)
        stem = [(layer.conv, layer.norm, layer.activation) for layer in parts.stem]
        blocks = [
            (block.name, *(layer.activation for layer in block.layers)) for block in parts.blocks
        ]
        names = [*stem, *blocks]
        first = next((i for i, inside in enumerate(names) if _is_trained(plan, inside)), len(names))
        activations = (name for inside in names[first:] for name in inside)
        signed = signed_activations(network, activations)
        if not signed:
            raise PocketuneError(
                "SignedBackward() finds no ReLU, ReLU6 or h-swish in a block that the gradient "
                "passes through: leave it out, or train blocks, as in TopBlocks() + "
                "SignedBackward()"
            )
        others = {n: signed_after(make) for n, make in plan.replaced.items() if n in signed}
        return replace(plan, replaced={**signed, **plan.replaced, **others})


def _is_trained(plan: Plan, modules: tuple[str | None, ...]) -> bool:
    prefixes = tuple(f"{name}." for name in modules if name)
    return any(name.startswith(prefixes) for name in plan.trained)
