"""What a method does to a network, as data."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from torch import nn

from pocketune.errors import PocketuneError
from pocketune.layers import make_contiguous
from pocketune.networks import Factory, set_about
from pocketune.surgery import (
    add_branches,
    batch_norms,
    chain_filters,
    dequantize,
    disable_inplace,
    freeze_batch_norms,
    freeze_convolutions,
    quantize_frozen,
    quantized,
    swap,
    train_only,
    use_lean_layers,
)


class MethodConflict(PocketuneError):  # noqa: N818 (it is the user's word for it)
    """Two methods want different things of one layer; the message names the layer."""


@dataclass(frozen=True)
class Plan:
    """What is trained, replaced and added, by the names of the network's own modules.

    Attributes:
        trained: names of the parameters that are trained, as they are after `replaced` and
            `branches`.
        batch_norms: names of the batch norms that normalize with the batch's statistics and
            update the running ones; every other batch norm becomes a `FrozenBatchNorm2d`.
        replaced: for each replaced module the factory of the one that takes its place.
        branches: for each block that gets a side branch the factory that makes it; its
            parameters are called `<block>.branch.<name>`.
        lean: whether exact layers that keep less take the place of PyTorch's own, wherever no
            method has put another one.
        chained: whether filtered convolutions hand their gradients on in patches where they can.
    """

    trained: frozenset[str]
    batch_norms: frozenset[str]
    replaced: Mapping[str, Factory] = field(default_factory=dict)
    branches: Mapping[str, Factory] = field(default_factory=dict)
    lean: bool = False
    chained: bool = True

    @classmethod
    def training(cls, network: nn.Module, trained: Iterable[str]) -> "Plan":
        """Train these parameters and replace nothing.

        A batch norm whose scale is trained uses the batch's statistics; all others are frozen,
        though their shift may be trained.
        """
        trained = frozenset(trained)
        norms = (name for name in batch_norms(network) if f"{name}.weight" in trained)
        return cls(trained, frozenset(norms))

    def apply(self, network: nn.Module, *, frozen_bits: int = 32) -> None:
        """Carry the plan out, in place.

        Args:
            network: what is changed.
            frozen_bits: in which the kernels of frozen convolutions are stored, 32 or 8.

        Raises:
            PocketuneError: if a layer to replace is not there.
            MethodConflict: if a parameter to train is not there once layers are replaced.
        """
        in_int8 = quantized(network)
        dequantize(network, [n for n in in_int8 if frozen_bits == 32 or self._needs_float(n)])
        add_branches(network, self.branches)
        absent = self.replaced.keys() - {name for name, _ in network.named_modules()}
        if absent:
            raise PocketuneError(f"the network has no layer {min(absent)} to replace")
        swap(network, self.replaced)
        missing = self.trained.difference(name for name, _ in network.named_parameters())
        if missing:
            layer, _, parameter = min(missing).rpartition(".")
            raise MethodConflict(
                f"layer {layer} has no parameter {parameter} to train, after one method replaced "
                "it for another; use the methods one at a time"
            )
        train_only(network, self.trained)
        freeze_batch_norms(network, keep=self.batch_norms)
        if self.lean:
            use_lean_layers(network)
        freeze_convolutions(network)
        disable_inplace(network)
        make_contiguous(network)
        if frozen_bits == 8:
            quantize_frozen(network)
        chains = chain_filters(network) if self.chained else ()
        set_about(network, filter_chains=chains, frozen_bits=frozen_bits)

    def _needs_float(self, conv: str) -> bool:
        """Whether a kernel of int8 cannot stay what it is."""
        inside = any(f"{conv}.".startswith(f"{layer}.") for layer in self.replaced)
        return inside or f"{conv}.weight" in self.trained
