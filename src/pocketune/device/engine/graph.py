"""One graph of a kit, opened in the runtime with the parameters bound to it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pocketune.device.engine import session as runtime
from pocketune.device.memory.reclaim import freed_at_once, reclaim
from pocketune.kit.kit import Kit
from pocketune.kit.manifest import KitError
from pocketune.kit.names import FEATURES, STEP

Arrays = Mapping[str, NDArray[Any]]


class Graph:
    """A graph, some of whose inputs are arrays that stay where they are.

    Args:
        kit: The kit.
        name: Name of the graph's file.
        bound: C-contiguous arrays by input name. Each run reads them in place and so sees what
            was written into them since the last. Those that the graph does not take are left out.
        inputs: Names of the inputs that each run brings along.
        outputs: Names of the outputs to compute.

    Raises:
        KitError: The graph does not parse or has an operator that the runtime lacks, or its
            inputs and outputs are not those of this kit.
    """

    def __init__(
        self, kit: Kit, name: str, *, bound: Arrays, inputs: Sequence[str], outputs: Sequence[str]
    ) -> None:
        where = f"{name} of the kit {kit.path}"
        model = kit.source(name)
        reclaim()
        try:
            with freed_at_once():
                self._session = runtime.open_session(
                    model, as_written=name == STEP, integers=name == FEATURES and _integers(kit)
                )
        except Exception as error:  # the runtime's own types, which have no base in common
            raise KitError(
                f"{where} cannot be opened: it is damaged, or made for a newer runtime "
                f"({str(error).splitlines()[0]})"
            ) from error
        reclaim()  # of what opening it took, half is needed no more
        taken = {value.name for value in self._session.get_inputs()}
        given = {value.name for value in self._session.get_outputs()}
        strange = sorted((taken - {*bound, *inputs}) | (set(outputs) - given))
        if strange:
            raise KitError(f"{where} does not match its manifest: check its tensor {strange[0]}")
        self._bound = {key: array for key, array in bound.items() if key in taken}
        self._inputs = [key for key in inputs if key in taken]
        self._outputs = list(outputs)

    def run(self, feeds: Arrays) -> dict[str, NDArray[Any]]:
        """Compute the outputs, which are the runtime's own memory, handed on without a copy."""
        feeds = {**self._bound, **{name: feeds[name] for name in self._inputs}}
        values = self._session.run(self._outputs, feeds)
        return {name: np.asarray(v) for name, v in zip(self._outputs, values, strict=True)}


def _integers(kit: Kit) -> bool:
    """Whether the frozen part computes in 8 bits."""
    quantization = kit.manifest.quantization
    return quantization is not None and quantization.activations == 8
