"""The contract of a fine-tuning method."""

import itertools
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from pocketune.errors import PocketuneError, Remedy
from pocketune.layers.quantized import count_int8_weights
from pocketune.methods.plan import Plan
from pocketune.networks import about, set_about
from pocketune.networks.probe import copy_network, gradients_on
from pocketune.surgery import float_shapes, quantized, separate, separate_batch_norms
from pocketune.weights.batch_norm import is_folded


class Method(ABC):
    """Which parts of a network are trained, and how: a frozen dataclass of the method's knobs.

    Methods add up: `BiasAndLast() + TopBlocks(blocks=1)` trains what either trains.
    """

    name: ClassVar[str]
    """Under which `create_method` knows it; set by `@register_method`."""

    @property
    def frozen_bits(self) -> int:
        """Bits of frozen kernels, 8 or 32, where the caller of `adapt` gives none."""
        return 32

    @abstractmethod
    def plan(self, network: nn.Module) -> Plan:
        """What this method does to `network`, which stays as it is.

        Raises:
            PocketuneError: if the method does not fit the network.
        """

    def finalize(self, plan: Plan, network: nn.Module) -> Plan:  # noqa: ARG002 (for overriding)
        """Add to the whole `plan` what depends on the parameters that any method trains.

        It is called after all methods of a sum have planned, in their order.

        Args:
            plan: everything that the methods train, replace and add so far.
            network: what is adapted; it stays as it is.

        Raises:
            PocketuneError: if the method has no effect on such a plan.
        """
        return plan

    def resolve(self, network: nn.Module, plan: Plan) -> "Method":  # noqa: ARG002
        """This method with all choices made that depend on what is trained.

        `adapt` calls it once, before the plan that it carries out, and declares its result as the
        network's method, so that a network that is built again is the same.

        Args:
            network: what is adapted; it stays as it is.
            plan: of this method, or of the whole sum that it is part of.

        Returns:
            This method itself, unless a subclass has choices to make.

        Raises:
            PocketuneError: if the method does not fit what is trained.
        """
        return self

    def adapt(self, network: nn.Module) -> nn.Module:
        """See `adapt`."""
        return adapt(network, self)

    def __add__(self, other: "Method") -> "Sum":
        if not isinstance(other, Method):
            return NotImplemented
        return Sum((self, other))


@dataclass(frozen=True)
class Sum(Method):
    """Several methods at once, as `a + b + c` makes them; a sum in a sum is flattened."""

    name: ClassVar[str] = "sum"
    methods: tuple[Method, ...]

    def __post_init__(self) -> None:
        if not self.methods:
            raise PocketuneError("a sum of methods needs at least one method")
        terms = [m.methods if isinstance(m, Sum) else (m,) for m in self.methods]
        object.__setattr__(self, "methods", tuple(itertools.chain(*terms)))

    @property
    def frozen_bits(self) -> int:
        """The fewest of any of the methods."""
        return min(method.frozen_bits for method in self.methods)

    def plan(self, network: nn.Module) -> Plan:
        """Everything that any of the methods trains, replaces or adds.

        Raises:
            MethodConflict: if two of them replace the same layer, or one replaces a layer inside
                another's, or two of them add a branch to the same block.
        """
        return Plan.merge([(method, method.plan(network)) for method in self.methods])

    def finalize(self, plan: Plan, network: nn.Module) -> Plan:
        """The whole plan, finalized by each method in turn."""
        for method in self.methods:
            plan = method.finalize(plan, network)
        return plan

    def resolve(self, network: nn.Module, plan: Plan) -> "Sum":
        """Each method, resolved by what all of them train."""
        return Sum(tuple(method.resolve(network, plan) for method in self.methods))

    def __str__(self) -> str:
        return " + ".join(map(str, self.methods))


def final_plan(method: Method, network: nn.Module) -> Plan:
    """Everything that `method` does to `network`: its plan, finalized.

    Raises:
        PocketuneError: if the method does not fit the network, or trains nothing of it.
        MethodConflict: if two methods of a sum want different things of one layer.
    """
    plan = method.finalize(method.plan(network), network)
    if not plan.trained:
        raise PocketuneError(
            f"{method} trains nothing by itself",
            remedy=Remedy("add method", "add it to another, as in TopBlocks() + SignedBackward()"),
        )
    return plan


@gradients_on()
def adapt(network: nn.Module, method: Method, *, frozen_bits: int | None = None) -> nn.Module:
    """A copy of `network` ready to be fine-tuned by `method`; `network` stays as it is.

    `about` of the copy has the resolved `method` beside the facts of `network`. Parameters that are
    not trained have `requires_grad=False`, batch norms that are not trained are
    `FrozenBatchNorm2d` or `FrozenBatchNorm1d`, and activations do not work in place. A
    `SyncBatchNorm` that is trained becomes a `BatchNorm2d`, with the statistics of its own process.

    Args:
        network: what is adapted.
        method: what is trained, and how.
        frozen_bits: 8 or 32, for the kernels of frozen convolutions; where it is None, 8 if the
            network was loaded in 8 bits, else the method's own `frozen_bits`.

    Raises:
        PocketuneError: if `method` is not a Method or does not fit the network, the network is
            adapted already or has layers that share their values, or `frozen_bits` is neither 8
            nor 32.
        MethodConflict: if two methods of a sum want different things of one layer.
    """
    if not isinstance(method, Method):
        raise PocketuneError(
            f"method={method!r} is not a Method; give one like MobileTL() or "
            'create_method("mobiletl")'
        )
    if (earlier := about(network).method) is not None:
        raise PocketuneError(
            f"the network is adapted to {earlier} already; adapt the original network, "
            f"to both with {earlier} + {method}"
        )
    bits = resolve_frozen_bits(network, frozen_bits, method.frozen_bits)
    adapted = copy_network(network)
    separate(adapted)
    separate_batch_norms(adapted)
    shapes = float_shapes(adapted)
    method = method.resolve(adapted, method.plan(shapes))
    plan = final_plan(method, shapes)
    folded = [n for n, m in network.named_modules() if n in plan.batch_norms and is_folded(m)]
    if folded:
        warnings.warn(
            f"{method} trains batch norms, {folded[0]} among them, that were folded away in the "
            "weights: measure their statistics first, with restore_batch_norm(network, batches)",
            stacklevel=2,
        )
    plan.apply(adapted, frozen_bits=bits)
    set_about(adapted, method=method)
    return adapted


@dataclass(frozen=True)
class TrainableCount:
    """Numbers of parameters; running statistics do not count."""

    trained: int
    total: int

    def __str__(self) -> str:
        share = self.trained / self.total
        return f"{self.trained:,} of {self.total:,} parameters are trained ({share:.2%})"


def trainable(network: nn.Module) -> TrainableCount:
    """Count what is trained in an adapted network; print it to see a sentence."""
    counts = [(p.numel(), p.requires_grad) for p in network.parameters()]
    total = sum(n for n, _ in counts) + count_int8_weights(network)
    return TrainableCount(sum(n for n, trained in counts if trained), total)


def resolve_frozen_bits(network: nn.Module, asked: int | None, usual: int) -> int:
    """Bits for a network that is to be adapted.

    Args:
        network: not adapted yet.
        asked: what the user wants, if anything.
        usual: the method's own; a network that was loaded in 8 bits stays in them nevertheless.

    Raises:
        PocketuneError: as `check_frozen_bits`.
    """
    bits = (8 if quantized(network) else usual) if asked is None else asked
    check_frozen_bits(bits)
    return bits


def check_frozen_bits(bits: object) -> None:
    """Refuse what frozen kernels cannot be stored in.

    Raises:
        PocketuneError: if it is neither 8 nor 32.
    """
    if bits not in (8, 32):
        raise PocketuneError(
            f"frozen_bits={bits!r} is not possible; frozen weights are stored in 8 or 32 bits"
        )
