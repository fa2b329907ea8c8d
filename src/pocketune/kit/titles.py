"""Titles of networks and methods, from the fields that manifests and records have of them.

A kit may come from a stranger, and nothing checks these fields: what is of no use here is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pocketune.errors import counted
from pocketune.kit.manifest import terms_of

_NOT_LISTED = {"name", "classes", "hidden", "branches", "batch", "size"}
"""Fields that are told apart, and the images that a method measures with."""


def network_title(network: Mapping[str, Any]) -> str:
    """The name of a network, with what tells it from others of its architecture.

    >>> network_title({"name": "mobilenet_v2", "width": 0.35, "classes": 10, "norm": "group"})
    'mobilenet_v2 0.35, group norm'
    >>> network_title({"name": "deeplabv3", "backbone": "resnet18", "output_stride": 16})
    'deeplabv3 of resnet18, stride 16'
    """
    name = str(network.get("name", "a network"))
    if backbone := network.get("backbone"):
        stride = f", stride {network['output_stride']}" if network.get("output_stride") else ""
        return f"{name} of {network_title({**network, 'name': backbone, 'backbone': None})}{stride}"
    width = network.get("width")
    wide = f" {width:g}" if isinstance(width, int | float) and width != 1 else ""
    first = f", first {network['first_blocks']} blocks" if network.get("first_blocks") else ""
    norm = ", group norm" if network.get("norm") == "group" else ""
    pruned = ", pruned" if network.get("hidden") else ""
    return f"{name}{wide}{first}{norm}{pruned}"


def full_title(values: Mapping[str, Any]) -> str:
    """A network or method with its options.

    >>> full_title({"name": "blocks", "blocks": 3})
    'blocks (blocks 3)'
    >>> full_title({"name": "sum", "methods": [{"name": "full"}, {"name": "fewbit", "bits": 4}]})
    'full + fewbit (bits 4)'
    """
    if len(terms := terms_of(values)) > 1:
        return " + ".join(map(full_title, terms))
    options = [
        f"{name.replace('_', ' ')} {value}"
        for name, value in values.items()
        if name not in _NOT_LISTED and value is not None
    ]
    hidden = values.get("hidden")
    if hidden and isinstance(hidden, Mapping):
        options.append(f"pruned in {counted(len(hidden), 'block')}")
    name = str(values.get("name", "a network"))
    return f"{name} ({', '.join(options)})" if options else name
