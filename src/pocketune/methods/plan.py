"""What a method does to a network, as data."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import nn

from pocketune.errors import PocketuneError
from pocketune.layers import make_contiguous
from pocketune.networks import Factory, set_about
from pocketune.networks.anatomy.modules import is_within
from pocketune.networks.copies import disable_inplace
from pocketune.surgery import (
    add_branches,
    batch_norms,
    dequantize,
    freeze_batch_norms,
    freeze_convolutions,
    quantize_frozen,
    quantized,
    settle_kernels,
    swap,
    train_only,
)


class MethodConflict(PocketuneError):  # noqa: N818 (it is the user's word for it)
    """Two methods change the same layer; the message names the layer."""


@dataclass(frozen=True)
class Pass:
    """A change to the whole network, in place, after its layers are replaced and frozen.

    A pass that several methods share runs once.

    Attributes:
        run: Takes the network.
        late: Whether to run last, after frozen convolutions are replaced and no activation works
            in place.
    """

    run: Callable[[nn.Module], None]
    late: bool = False


@dataclass(frozen=True)
class Plan:
    """What is trained, replaced and added, by the names of the network's own modules.

    Attributes:
        trained: Names of the trained parameters, after `replaced` and `branches` are applied.
        batch_norms: Names of the batch norms that normalize with the batch's statistics and
            update the running ones; every other batch norm becomes a `FrozenBatchNorm2d`.
        replaced: For each module to replace, the factory of its replacement.
        branches: For each block that gets a side branch, the factory of the branch; its parameters
            are called `<block>.branch.<name>`.
        passes: Further changes to the network, in this order.
    """

    trained: frozenset[str] = frozenset()
    batch_norms: frozenset[str] = frozenset()
    replaced: Mapping[str, Factory] = field(default_factory=dict)
    branches: Mapping[str, Factory] = field(default_factory=dict)
    passes: tuple[Pass, ...] = ()

    def __post_init__(self) -> None:
        for name in ("trained", "batch_norms"):
            names = getattr(self, name)
            if isinstance(names, str) or not isinstance(names, Iterable):
                raise PocketuneError(f"{name}={names!r} of a plan must be a set of names")
            object.__setattr__(self, name, frozenset(names))

    @classmethod
    def training(cls, network: nn.Module, trained: Iterable[str]) -> "Plan":
        """Train these parameters and replace nothing.

        A batch norm with a trained weight uses the batch's statistics. All others are frozen, but
        their bias may be trained.
        """
        trained = frozenset(trained)
        norms = (name for name in batch_norms(network) if f"{name}.weight" in trained)
        return cls(trained, frozenset(norms))

    @classmethod
    def merge(cls, plans: Sequence[tuple[object, "Plan"]]) -> "Plan":
        """Everything that any of these plans does; each comes with its method.

        Raises:
            MethodConflict: Two of them replace the same layer, one replaces a layer inside
                another's, or two of them add a branch to the same block; it names the methods.
        """
        replaced = [(method, plan.replaced) for method, plan in plans]
        branches = [(method, plan.branches) for method, plan in plans]
        return cls(
            frozenset().union(*(plan.trained for _, plan in plans)),
            frozenset().union(*(plan.batch_norms for _, plan in plans)),
            _merge(replaced, "replace layer", clash=_nested),
            _merge(branches, "add a branch to block", clash=str.__eq__),
            tuple(dict.fromkeys(step for _, plan in plans for step in plan.passes)),
        )

    def apply(self, network: nn.Module, *, frozen_bits: int = 32) -> None:
        """Apply the plan to a network, in place.

        Args:
            network: The network to change.
            frozen_bits: Bits in which the weights of frozen layers are stored, 32 or 8.

        Raises:
            PocketuneError: A layer to replace, a block to add a branch to, a parameter to train or
                a batch norm does not exist.
            MethodConflict: A parameter to train does not exist after layers are replaced.
        """
        in_int8 = quantized(network)
        dequantize(network, [n for n in in_int8 if frozen_bits == 32 or self._needs_float(n)])
        _require(_modules(network), self.branches, "block {} to add a branch to")
        add_branches(network, self.branches)
        before = _modules(network)
        _require(before, self.replaced, "layer {} to replace")
        swap(network, self.replaced)
        _require(before | _modules(network), self.batch_norms, "batch norm {}")
        missing = self.trained.difference(name for name, _ in network.named_parameters())
        if missing:
            raise self._missing(min(missing))
        train_only(network, self.trained)
        freeze_batch_norms(network, keep=self.batch_norms)
        settle_kernels(network)
        self._run_passes(network, late=False)
        freeze_convolutions(network)
        disable_inplace(network)
        make_contiguous(network)
        if frozen_bits == 8:
            quantize_frozen(network)
        set_about(network, frozen_bits=frozen_bits)
        self._run_passes(network, late=True)

    def _missing(self, name: str) -> PocketuneError:
        """Why there is no parameter of this name after layers are replaced."""
        layer, _, parameter = name.rpartition(".")
        if any(is_within(layer, replaced) for replaced in self.replaced):
            return MethodConflict(
                f"layer {layer} has no parameter {parameter} to train, after another method "
                "replaced it; use the methods one at a time"
            )
        return PocketuneError(
            f"the network has no parameter {name} to train; give a name of "
            "network.named_parameters()"
        )

    def _run_passes(self, network: nn.Module, *, late: bool) -> None:
        for step in self.passes:
            if step.late is late:
                step.run(network)

    def _needs_float(self, conv: str) -> bool:
        """Whether an int8 kernel must be converted to float."""
        inside = any(is_within(conv, layer) for layer in self.replaced)
        return inside or f"{conv}.weight" in self.trained


def _modules(network: nn.Module) -> set[str]:
    return {name for name, _ in network.named_modules()}


def _require(known: set[str], names: Iterable[str], what: str) -> None:
    """Check that a plan names modules that exist."""
    if absent := [name for name in names if name not in known]:
        raise PocketuneError(
            f"the network has no {what.format(min(absent))}; give a name of network.named_modules()"
        )


def _merge(
    parts: Sequence[tuple[object, Mapping[str, Factory]]],
    what: str,
    *,
    clash: Callable[[str, str], bool],
) -> dict[str, Factory]:
    """The factories of several methods together; clashing ones are refused."""
    merged: dict[str, Factory] = {}
    owners: dict[str, object] = {}
    for method, factories in parts:
        for name in factories:
            for taken, owner in owners.items():
                if clash(name, taken):
                    raise MethodConflict(
                        f"{owner} and {method} both {what} {max(name, taken, key=len)}; "
                        "use one of them"
                    )
        merged.update(factories)
        owners.update(dict.fromkeys(factories, method))
    return merged


def _nested(a: str, b: str) -> bool:
    """Whether one module's name is the other's or lies inside it."""
    return is_within(a, b) or is_within(b, a)
