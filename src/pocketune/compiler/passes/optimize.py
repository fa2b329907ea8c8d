"""Rewrite a kit's graphs so that a device needs less memory and time for them."""

from collections.abc import Iterable

from pocketune.compiler.graphs import Graphs
from pocketune.compiler.passes.layout import leave_large_plain
from pocketune.compiler.passes.recompute import recompute_from_parameters
from pocketune.compiler.passes.schedule import order_for_memory
from pocketune.compiler.settings import CompileSettings
from pocketune.kit.manifest import MaskSpec


def optimize(
    graphs: Graphs, settings: CompileSettings, masks: Iterable[MaskSpec]
) -> dict[str, int]:
    """Recompute, reorder and rename nodes, in place; what the graphs compute stays the same.

    Args:
        graphs: as `build_graphs` makes them.
        settings: those of `build_graphs`.
        masks: what the device draws for each step.

    Returns:
        Bytes that a run of each graph allocates at once, by the graph's name.
    """
    varying = frozenset({"images", "features", "labels", *(spec.name for spec in masks)})
    memory = {}
    for name, model, sizes in graphs.sized(settings):
        if name == "step":
            recompute_from_parameters(model, sizes, varying)
        memory[name] = order_for_memory(model, sizes)
        if name == "step":
            leave_large_plain(model, sizes)
    return memory
