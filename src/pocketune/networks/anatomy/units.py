"""The repeated units of any network: the outermost modules that map features to features.

Each layer with weights has a deepest module on the trunk that it is in. If that is the layer, it is
one of a row of layers. If not, the module runs it beside something else, such as a shortcut or
other branches, and is a unit. A squeeze-excite module is not. The outermost of these modules are
the units, together with others of the same class, which may lack the shortcut where a stage begins,
and with modules between them that hold at least two layers with weights. Where a repeated module is
a row of units by their own names, it is the unit. A network without branches has its convolutions
as units, with the norms and activations that follow them.
"""

from collections import Counter
from collections.abc import Iterator

from torch import Tensor, nn

from pocketune.networks.anatomy.blocks import INVERTED, is_squeeze_excite, read_block
from pocketune.networks.anatomy.modules import is_convolution, is_within, main_modules, weighs
from pocketune.networks.anatomy.trunk import Call, Run, weighted

CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def find_units(modules: dict[str, nn.Module], seen: Run) -> list[str]:
    """Paths of the units of a network, in the order in which they run.

    Args:
        modules: Those of the network, by their paths.
        seen: A run of it.
    """
    branching = _branching(modules, seen)
    classes = {type(modules[path]) for path in branching} - {*CONTAINERS}
    units: list[str] = []

    def walk(path: str) -> None:
        if path and is_unit(path):
            units.append(path)
            return
        for child, _ in modules[path].named_children():
            name = f"{path}.{child}" if path else child
            if name in modules:
                walk(name)

    def is_unit(path: str) -> bool:
        module = modules[path]
        if path in branching:
            return True
        if isinstance(module, CONTAINERS) or not _maps_features(seen, path):
            return False
        return type(module) in classes or _is_row(path, module)

    walk("")
    units = _with_modules_between(modules, seen, units)
    units = _joined(modules, seen, units) or _convolutions(modules, seen)
    return sorted(units, key=lambda path: seen.calls[path].order)


def _branching(modules: dict[str, nn.Module], seen: Run) -> set[str]:
    """The outermost modules that run some of their layers with weights beside something else.

    In place of a list or dictionary of modules with a forward method of its own, such as a dense
    block, these are the modules in it.
    """
    gates = {path for path in seen.trunk if _is_gate(path, modules[path], seen)}
    found: set[str] = set()
    for layer in weighted(modules, seen):
        above = [path for path in _ancestors(layer) if path in seen.trunk - gates]
        if above and above[0] != layer and _maps_features(seen, above[0]):
            found.add(above[0])
    outermost = {path for path in found if not any(_is_inside(path, other) for other in found)}
    return {unit for path in outermost for unit in _members(modules, seen, path)}


def _members(modules: dict[str, nn.Module], seen: Run, path: str) -> list[str]:
    """The modules of a container that hold layers; else the module itself."""
    module = modules[path]
    if not isinstance(module, (nn.ModuleList, nn.ModuleDict)):
        return [path]
    inside = [f"{path}.{name}" for name, part in module.named_children() if [*part.children()]]
    return [name for name in inside if name in seen.calls] or [path]


def _is_gate(path: str, module: nn.Module, seen: Run) -> bool:
    """Whether a module multiplies what it reads by what two 1x1 layers make of it."""
    if not is_squeeze_excite(module):
        return False
    operators = seen.operators(path)
    return "MulBackward" in operators and "AddBackward" not in operators


def _is_row(path: str, module: nn.Module) -> bool:
    block = read_block(path, module)
    return block is not None and block.kind in INVERTED


def _with_modules_between(modules: dict[str, nn.Module], seen: Run, units: list[str]) -> list[str]:
    """The units and, behind the first one, the outermost other modules with two or more layers."""
    if not units:
        return []
    start = min(seen.calls[path].order for path in units)
    more: list[str] = []
    for path, module in modules.items():
        known = any(is_within(path, unit) or is_within(unit, path) for unit in units + more)
        if known or isinstance(module, CONTAINERS) or path not in seen.trunk:
            continue
        layers = sum(weighs(part) for part in module.modules())
        if layers > 1 and seen.calls[path].order > start and _maps_features(seen, path):
            more.append(path)
    return units + more


def _joined(modules: dict[str, nn.Module], seen: Run, units: list[str]) -> list[str]:
    """The units with repeated modules in place of the units that these hold as attributes.

    A module that holds units in a list is a stage, and so is one that consists of units and changes
    the shape of the features wherever it is.
    """
    parents = {path.rpartition(".")[0] for path in units} - {""}
    rows = [
        path
        for path in parents
        if not isinstance(modules[path], CONTAINERS)
        and _maps_features(seen, path)
        and all(unit.rpartition(".")[0] == path for unit in units if is_within(unit, path))
    ]
    kinds = Counter(type(modules[path]) for path in rows)
    joined = {
        type(modules[path])
        for path in rows
        if kinds[type(modules[path])] > 1
        and (_keeps_shape(seen.calls[path]) or _has_more(modules[path], path, units))
    }
    rows = [path for path in rows if type(modules[path]) in joined]
    return rows + [unit for unit in units if unit.rpartition(".")[0] not in rows]


def _keeps_shape(call: Call) -> bool:
    return [tensor.shape for tensor in call.given] == [tensor.shape for tensor in call.made]


def _has_more(module: nn.Module, path: str, units: list[str]) -> bool:
    """Whether a module has layers with weights outside of its units."""
    names = (name for name, part in main_modules(module, prefix=path) if weighs(part))
    return any(not any(is_within(name, unit) for unit in units) for name in names)


def _convolutions(modules: dict[str, nn.Module], seen: Run) -> list[str]:
    """The convolutions on the trunk of a network that is one row, between its outermost layers."""
    layers = [path for path in weighted(modules, seen) if path in seen.trunk]
    return [
        path
        for path in layers[1:-1]
        if is_convolution(modules[path]) and _maps_features(seen, path)
    ]


def _maps_features(seen: Run, path: str) -> bool:
    """Whether a module reads and returns feature maps or tokens, and not pooled vectors."""
    call = seen.calls.get(path)
    if call is None or not call.given or not call.made:
        return False
    return all(map(_is_features, call.made)) and any(map(_is_features, call.given))


def _is_features(tensor: Tensor) -> bool:
    """Whether a tensor has more than one pixel or token."""
    return tensor.dim() > 2 and (tensor.dim() != 4 or max(tensor.shape[2:]) > 1)


def _ancestors(path: str) -> Iterator[str]:
    """The path itself, and those of the modules around it, innermost first."""
    while path:
        yield path
        path = path.rpartition(".")[0]


def _is_inside(path: str, module: str) -> bool:
    return path != module and is_within(path, module)
