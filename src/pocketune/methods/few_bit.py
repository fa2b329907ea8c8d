"""Few-bit backward: smooth activations and layer norms keep a few bits an element."""

from dataclasses import dataclass, replace

from torch import nn

from pocketune.errors import PocketuneError
from pocketune.layers.activation import MASKED
from pocketune.layers.few_bit import FEW_BIT, few_bit
from pocketune.layers.few_bit_norm import FewBitLayerNorm
from pocketune.layers.slopes import check_bits
from pocketune.methods.method import Method
from pocketune.methods.parts import classifier, needed_anatomy, split_at_first_trained
from pocketune.methods.plan import Plan
from pocketune.methods.registry import register_method
from pocketune.networks import Factory
from pocketune.networks.anatomy.modules import main_modules

_CHANNELS_FIRST = {"LayerNorm": False, "LayerNorm2d": True}
"""By the name of a class: timm and torchvision have layer norms of their own."""

_TIMMS = {"GELU": nn.GELU(), "GELUTanh": nn.GELU(approximate="tanh")}
"""What timm's own activations compute, by the name of their class."""


@register_method("fewbit")
@dataclass(frozen=True)
class FewBitBackward(Method):
    """Keep a few bits of the derivative of GELU, SiLU and h-swish, for another method.

    Few-bit Backward: Quantized Gradients of Activation Functions for Memory Footprint Reduction
    (Novikov et al., ICML 2023). The forward pass is exact. In the backward pass the derivative of
    an activation is a step function of `2**bits` levels, the best one in the mean square over all
    inputs. ReLU and ReLU6 are step functions themselves: they keep one bit and stay exact.

    Where no weight of a linear layer or convolution is trained but the classifier's, layer norms
    keep their normalized input in 8 bits. A trained layer behind a norm would keep its output at
    full width, and 8 bits would come on top.

    Every activation that the gradient passes through is replaced, except those that another method
    replaces. This trains nothing by itself: add it to a method, as in
    `TopBlocks(3) + FewBitBackward(bits=8)`.

    Attributes:
        bits: Bits that an element of an activation keeps: 1, 2, 4 or 8.
    """

    bits: int = 8

    def __post_init__(self) -> None:
        check_bits(self.bits)

    def plan(self, network: nn.Module) -> Plan:  # noqa: ARG002
        """An empty plan: the changes depend on what the other methods train."""
        return Plan()

    def finalize(self, plan: Plan, network: nn.Module) -> Plan:
        """Replace the activations from the first trained part on.

        Raises:
            PocketuneError: The gradient passes none, or the network has no blocks.
        """
        below, _ = split_at_first_trained(plan, needed_anatomy(network, self))
        skipped = {name for part in below for name in part if name} | plan.replaced.keys()
        prefixes = tuple(f"{name}." for name in skipped)
        norms = _trains_vectors_only(plan, network)
        found: dict[str, Factory] = {
            name: self._make
            for name, module in main_modules(network)
            if _is_activation(module) or (norms and _is_layer_norm(module))
            if not f"{name}.".startswith(prefixes)
        }
        if not found:
            raise PocketuneError(
                f"{self} finds no GELU, SiLU, h-swish, ReLU or ReLU6 module that the gradient "
                "passes through; leave it out, or train blocks, as in TopBlocks() + "
                "FewBitBackward()"
            )
        return replace(plan, replaced={**plan.replaced, **found})

    def _make(self, exact: nn.Module) -> nn.Module:
        if isinstance(exact, nn.LayerNorm):
            first = _CHANNELS_FIRST[type(exact).__name__]
            return FewBitLayerNorm.from_layer_norm(exact, channels_first=first)
        exact = _as_pytorchs(exact)
        masked = MASKED.get(type(exact))
        return masked() if masked else few_bit(exact, self.bits)


def _as_pytorchs(module: nn.Module) -> nn.Module:
    """PyTorch's module in place of timm's own; others as they are."""
    kind = type(module)
    return _TIMMS.get(kind.__name__, module) if kind.__module__.startswith("timm.") else module


def _is_activation(module: nn.Module) -> bool:
    return type(_as_pytorchs(module)) in (*FEW_BIT, *MASKED)


def _is_layer_norm(module: nn.Module) -> bool:
    """Whether its forward pass is known; a user's class of the same name may have another."""
    kind = type(module)
    known = kind.__module__.startswith(("torch.", "timm.", "torchvision.", "pocketune."))
    return known and isinstance(module, nn.LayerNorm) and kind.__name__ in _CHANNELS_FIRST


def _trains_vectors_only(plan: Plan, network: nn.Module) -> bool:
    """Whether what is trained before the classifier are biases and weights of norms."""
    trained = plan.trained - classifier(network)
    vectors = {name for name, values in network.named_parameters() if values.dim() == 1}
    return bool(trained) and trained <= vectors
