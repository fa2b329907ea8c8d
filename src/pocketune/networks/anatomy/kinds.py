"""Reading a unit of a network that was run: its kind, and its convolutions with their roles."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from pocketune.networks.anatomy.blocks import (
    Block,
    Layer,
    find_squeeze_excite,
    in_shortcut,
    pointwise_sizes,
    read_block,
)
from pocketune.networks.anatomy.modules import (
    is_activation,
    is_convolution,
    is_depthwise,
    is_norm,
    is_pointwise,
    is_within,
    main_modules,
    weighs,
)
from pocketune.networks.anatomy.trunk import Call, Run


def read_unit(path: str, modules: dict[str, nn.Module], seen: Run) -> Block:
    """The unit at a path as a block.

    Its convolutions are `expand`, `depthwise` or `project`: the last dense ones and all behind them
    project. Convolutions that read the same tensor, or parts of one, have the same role.

    Args:
        path: Of the unit.
        modules: Those of the network, by their paths.
        seen: A run of the network.
    """
    module = modules[path]
    block = (
        _read_layer(path, modules, seen) if is_convolution(module) else _read(path, module, seen)
    )
    return replace(block, features=_features(seen.calls.get(path)))


def _read_layer(path: str, modules: dict[str, nn.Module], seen: Run) -> Block:
    """A convolution as a block, with its norm and its activation, which are elsewhere."""
    running = {name: part for name, part in modules.items() if name in seen.calls}
    layers = follow_layers("project", {path: modules[path]}, seen, running)
    return Block(path, "convolution", tuple(layers), None, residual=False)


def _read(path: str, module: nn.Module, seen: Run) -> Block:
    joins = "CatBackward" in seen.operators(path)  # as ShuffleNet does with what its blocks read
    if not joins and (block := read_block(path, module)) is not None:
        return block
    gate = find_squeeze_excite(path, module)
    running = _running(path, module, seen)
    parts = {name: part for name, part in running if gate is None or not is_within(name, gate)}
    kind = _kind(path, parts, seen, main_modules(module, prefix=path))
    residual = "AddBackward" in seen.operators(path)
    return Block(path, kind, tuple(_layers(path, parts, seen)), gate, residual)


def follow_layers(
    role: str,
    parts: dict[str, nn.Module],
    seen: Run,
    around: dict[str, nn.Module] | None = None,
) -> list[Layer]:
    """The convolutions among modules, each with the norm and the activation that reads it.

    These are looked for in `around`, or among the same modules.
    """
    return [
        Layer(role, name, *_behind(name, around or parts, seen))
        for name, part in parts.items()
        if is_convolution(part)
    ]


def _running(path: str, module: nn.Module, seen: Run) -> Iterator[tuple[str, nn.Module]]:
    """The modules in a unit that run, in the order in which they do."""
    inside = [item for item in main_modules(module, prefix=path) if item[0] in seen.calls]
    yield from sorted(inside, key=lambda item: seen.calls[item[0]].order)


def _kind(
    path: str, parts: dict[str, nn.Module], seen: Run, modules: Iterator[tuple[str, nn.Module]]
) -> str:
    layers = {name: part for name, part in parts.items() if weighs(part)}
    dense = all(_sign(layer) in ("linear", "1x1") for layer in layers.values())
    weighing = dense and any(name.endswith("SoftmaxBackward") for name in seen.operators(path))
    if weighing or seen.multiplies(path):
        return "attention"
    if any(_is_ghost(name, layers, seen) for name, _ in modules):
        return "ghost"
    groups = [*_groups(path, layers, seen)]
    if _is_mixed(groups, layers):
        return "mixed_inverted_residual"
    if any(_are_alike(group, parts, seen) for group in groups):
        return "reparameterized"
    if _is_convnext([*layers.values()]):
        return "convnext"
    return "mlp" if layers and dense else "other"


def _is_ghost(path: str, layers: dict[str, nn.Module], seen: Run) -> bool:
    """Whether a module joins the maps of a 1x1 convolution and those made of them depthwise."""
    inside = [part for name, part in layers.items() if is_within(name, path)]
    convs = [part for part in inside if is_convolution(part)]
    if path not in seen.calls or len(inside) != 2 or len(convs) != 2:
        return False
    first, cheap = convs
    made = seen.calls[path].made[0].shape[1]
    return is_pointwise(first) and is_depthwise(cheap) and made > first.out_channels


def _is_mixed(groups: list[list[str]], layers: dict[str, nn.Module]) -> bool:
    """Whether the groups are an inverted residual, with several convolutions in one of them."""
    signs = [{_sign(layers[name]) for name in group} for group in groups]
    known = ([{"1x1"}, {"dw"}, {"1x1"}], [{"dw"}, {"1x1"}])
    return signs in known and any(len(group) > 1 for group in groups)


def _sign(layer: nn.Module) -> str:
    if not is_convolution(layer):
        return "linear"
    return "dw" if is_depthwise(layer) else "1x1" if is_pointwise(layer) else "dense"


def _are_alike(group: list[str], parts: dict[str, nn.Module], seen: Run) -> bool:
    """Whether convolutions that read the same have equal channels and strides and are added."""
    shapes = []
    for layer in follow_layers("", {name: parts[name] for name in group}, seen, parts):
        conv = parts[layer.conv]
        plain = layer.activation is None and seen.added(layer.norm or layer.conv)
        if plain and is_convolution(conv):
            shapes.append((conv.out_channels, conv.groups, tuple(conv.stride)))
    return len(shapes) > len(set(shapes))


def _is_convnext(layers: list[nn.Module]) -> bool:
    """Whether a depthwise convolution is followed by two 1x1 layers, C -> wider -> C."""
    if len(layers) != 3 or not is_convolution(layers[0]) or not is_depthwise(layers[0]):
        return False
    widen, narrow = (pointwise_sizes(layer) for layer in layers[1:])
    return widen == narrow[::-1] and widen[:1] < widen[1:]


def _layers(path: str, parts: dict[str, nn.Module], seen: Run) -> Iterator[Layer]:
    """The convolutions of a unit with their roles, those in the shortcut last."""
    found = follow_layers("", parts, seen)
    convs = {layer.conv: part for layer in found if is_convolution(part := parts[layer.conv])}
    groups = [*_groups(path, convs, seen)]
    dense = [i for i, group in enumerate(groups) if not is_depthwise(convs[group[0]])]
    roles = {
        name: "project" if dense and i >= dense[-1] else "expand" if i in dense else "depthwise"
        for i, group in enumerate(groups)
        for name in group
    }
    yield from (replace(each, role=roles[each.conv]) for each in found if each.conv in roles)
    yield from (replace(each, role="downsample") for each in found if each.conv not in roles)


def _groups(path: str, layers: Mapping[str, nn.Module], seen: Run) -> Iterator[list[str]]:
    """Layers outside the shortcut, those together that read the same tensor or parts of one."""
    read: dict[Any, list[str]] = {}
    for name in layers:
        if not in_shortcut(name, path):
            read.setdefault(seen.calls[name].given[0].grad_fn, []).append(name)
    yield from read.values()


def _behind(conv: str, parts: dict[str, nn.Module], seen: Run) -> tuple[str | None, str | None]:
    """Paths of the norm and of the activation that read what a convolution has made."""
    norm = _reader(conv, parts, seen, is_norm)
    activation = None if norm is None else _inside(norm, parts)
    return norm, activation or _reader(norm or conv, parts, seen, is_activation)


def _reader(path: str, parts: dict[str, nn.Module], seen: Run, kind: Any) -> str | None:
    """The one module of a kind that reads what a module has made, if no other layer reads it."""
    made = seen.calls[path].made
    readers = [
        name
        for name, part in parts.items()
        if seen.calls[name].order > seen.calls[path].order
        and any(given is each for given in seen.calls[name].given for each in made)
        and (weighs(part) or is_norm(part) or is_activation(part))
    ]
    return readers[0] if len(readers) == 1 and kind(parts[readers[0]]) else None


def _inside(norm: str, parts: dict[str, nn.Module]) -> str | None:
    """The activation that is a part of a norm."""
    inside = (name for name, part in parts.items() if is_activation(part))
    return next((name for name in inside if is_within(name, norm) and name != norm), None)


def _features(call: Call | None) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    if call is None or len(call.given) != 1 or len(call.made) != 1:
        return None
    return tuple(call.given[0].shape[1:]), tuple(call.made[0].shape[1:])
