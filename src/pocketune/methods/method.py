"""The contract of a fine-tuning method."""

import itertools
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import ClassVar

from torch import nn

from pocketune.errors import PocketuneError, Remedy, warn
from pocketune.layers.quantized import count_int8_weights
from pocketune.methods.plan import Plan
from pocketune.networks import about, set_about
from pocketune.networks.checks import require_module, require_network, require_shapes
from pocketune.networks.copies import copy_network, gradients_on
from pocketune.surgery import (
    float_shapes,
    quantized,
    separate,
    separate_batch_norms,
    settle_output,
)
from pocketune.weights.batch_norm import is_folded


class Method(ABC):
    """Which parts of a network are trained, and how: a frozen dataclass of options.

    Methods can be added: `BiasAndLast() + TopBlocks(blocks=1)` trains what either trains.
    """

    name: ClassVar[str]
    """The name for `create_method`; set by `@register_method`."""

    @property
    def frozen_bits(self) -> int:
        """Bits of frozen kernels, 8 or 32, unless the caller of `adapt` gives them."""
        return 32

    @abstractmethod
    def plan(self, network: nn.Module) -> Plan:
        """What this method does to `network`, which is not changed.

        Raises:
            PocketuneError: The method does not fit the network.
        """

    def finalize(self, plan: Plan, network: nn.Module) -> Plan:  # noqa: ARG002 (for overriding)
        """Add to the whole `plan` what depends on the parameters that any method trains.

        It is called for each method of a sum, in order, after all of them have planned.

        Args:
            plan: Everything that the methods train, replace and add so far; `trained` is not empty.
            network: The network to adapt; not changed.

        Raises:
            PocketuneError: The method has no effect on this plan.
        """
        return plan

    def resolve(self, network: nn.Module, plan: Plan) -> "Method":  # noqa: ARG002
        """This method with all choices made that depend on the trained parameters.

        `adapt` calls it once, before the plan that it applies, and declares its result as the
        network's method, so that a rebuilt network is the same.

        Args:
            network: The network to adapt; not changed.
            plan: The plan of this method, or of the whole sum that it is part of.

        Returns:
            This method itself, unless a subclass has choices to make.

        Raises:
            PocketuneError: The method does not fit the trained parameters.
        """
        return self

    def adapt(self, network: nn.Module) -> nn.Module:
        """See `adapt`."""
        return adapt(network, self)

    def __str__(self) -> str:
        """The method with the options that are not the defaults, for messages."""
        options = fields(self)  # type: ignore[arg-type]
        given = {f.name: getattr(self, f.name) for f in options}
        changed = [f"{f.name}={given[f.name]!r}" for f in options if given[f.name] != f.default]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __add__(self, other: "Method") -> "Sum":
        if not isinstance(other, Method):
            return NotImplemented
        return Sum((self, other))


@dataclass(frozen=True, repr=False)
class Sum(Method):
    """Several methods together, as `a + b + c` makes them; nested sums are flattened."""

    name: ClassVar[str] = "sum"
    methods: tuple[Method, ...]

    def __post_init__(self) -> None:
        if not self.methods:
            raise PocketuneError("a sum of methods needs at least one method")
        terms = [m.methods if isinstance(m, Sum) else (m,) for m in self.methods]
        object.__setattr__(self, "methods", tuple(itertools.chain(*terms)))

    @property
    def frozen_bits(self) -> int:
        """The fewest bits of any of the methods."""
        return min(method.frozen_bits for method in self.methods)

    def plan(self, network: nn.Module) -> Plan:
        """Everything that any of the methods trains, replaces or adds.

        Raises:
            MethodConflict: Two of them replace the same layer, one replaces a layer inside
                another's, or two of them add a branch to the same block.
        """
        return Plan.merge([(method, planned(method, network)) for method in self.methods])

    def finalize(self, plan: Plan, network: nn.Module) -> Plan:
        """The whole plan, finalized by each method in turn."""
        for method in self.methods:
            plan = finalized(method, plan, network)
        return plan

    def resolve(self, network: nn.Module, plan: Plan) -> "Sum":
        """Each method, resolved for the parameters that all of them train."""
        return Sum(tuple(method.resolve(network, plan) for method in self.methods))

    def __str__(self) -> str:
        return " + ".join(map(str, self.methods))

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.methods))


def planned(method: Method, network: nn.Module) -> Plan:
    """The plan of a method.

    Raises:
        PocketuneError: The method does not fit the network, or returns something else.
    """
    return _require_plan(method, "plan", method.plan(network))


def finalized(method: Method, plan: Plan, network: nn.Module) -> Plan:
    """The plan that a method has finalized.

    Raises:
        PocketuneError: The method has no effect on this plan, or returns something else.
    """
    return _require_plan(method, "finalize", method.finalize(plan, network))


def _require_plan(method: Method, function: str, plan: object) -> Plan:
    if not isinstance(plan, Plan):
        kind = type(method).__name__
        raise PocketuneError(f"{kind}.{function} returned {plan!r}; return a Plan")
    return plan


def final_plan(method: Method, network: nn.Module) -> Plan:
    """Everything that `method` does to `network`: its plan, finalized.

    Raises:
        PocketuneError: The method does not fit the network, or trains nothing.
        MethodConflict: Two methods of a sum change the same layer.
    """
    return _final(method, planned(method, network), network)


def _final(method: Method, plan: Plan, network: nn.Module) -> Plan:
    if not plan.trained:
        raise PocketuneError(
            f"{method} trains nothing by itself",
            remedy=Remedy("add method", "add it to another, as in TopBlocks() + {it}", it=method),
        )
    return finalized(method, plan, network)


@gradients_on()
def adapt(network: nn.Module, method: Method, *, frozen_bits: int | None = None) -> nn.Module:
    """A copy of `network` that is ready to be fine-tuned by `method`.

    `about` of the copy has the facts of `network` and the resolved `method`. Frozen parameters have
    `requires_grad=False`, batch norms that are not trained are `FrozenBatchNorm2d` or
    `FrozenBatchNorm1d`, and activations do not work in place. A trained `SyncBatchNorm` becomes a
    `BatchNorm2d`, with the statistics of its own process. Heads whose scores are averaged become
    one linear layer, and an output layer without a bias gets one of zeros (`settle_output`).

    Args:
        network: The network to adapt; not changed.
        method: What is trained, and how.
        frozen_bits: 8 or 32, for the weights of frozen layers; None means 8 if the network
            was loaded in 8 bits, else the method's `frozen_bits`.

    Raises:
        PocketuneError: `network` is not a PyTorch module; `method` is not a Method or does not
            fit the network; the network is adapted already or has layers that share their values;
            or `frozen_bits` is neither 8 nor 32.
        MethodConflict: Two methods of a sum change the same layer.
    """
    require_network(network)
    require_shapes(network)
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
    settle_output(adapted)
    shapes = float_shapes(adapted)
    plan = planned(method, shapes)
    resolved = method.resolve(adapted, plan)
    if resolved != method:
        method, plan = resolved, planned(resolved, shapes)
    plan = _final(method, plan, shapes)
    folded = [n for n, m in network.named_modules() if n in plan.batch_norms and is_folded(m)]
    if folded:
        warn(
            f"{method} trains batch norms that are folded in the weights, such as {folded[0]}; "
            "measure their statistics first, with restore_batch_norm(network, batches)"
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
    """The number of trained parameters of an adapted network; prints as a sentence."""
    require_module(network)
    counts = [(p.numel(), p.requires_grad) for p in network.parameters()]
    total = sum(n for n, _ in counts) + count_int8_weights(network)
    return TrainableCount(sum(n for n, trained in counts if trained), total)


def resolve_frozen_bits(network: nn.Module, asked: int | None, usual: int) -> int:
    """Bits for a network that is to be adapted.

    Args:
        network: Not adapted yet.
        asked: The user's choice, if any.
        usual: The method's default; a network that was loaded in 8 bits stays in 8 bits.

    Raises:
        PocketuneError: As `check_frozen_bits`.
    """
    bits = (8 if quantized(network) else usual) if asked is None else asked
    check_frozen_bits(bits)
    return bits


def check_frozen_bits(bits: object) -> None:
    """Check the bits of frozen kernels.

    Raises:
        PocketuneError: They are neither 8 nor 32.
    """
    if bits not in (8, 32):
        raise PocketuneError(
            f"frozen_bits={bits!r} is not possible; frozen weights are stored in 8 or 32 bits"
        )
