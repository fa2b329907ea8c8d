"""`pocketune networks` and `methods`."""

from __future__ import annotations

import json
import shutil
import textwrap
from typing import TYPE_CHECKING, Any

from pocketune.cli.command import command
from pocketune.cli.options import JsonOption
from pocketune.errors import author_half

if TYPE_CHECKING:
    from collections.abc import Iterator


@command()
def networks(output: JsonOption) -> None:
    """List the networks with their parameter counts, and the license of their weights.

    With --json: a list of objects with "name", "parameters", "classes", "backbone" (null, except of
    networks for masks), "license" and "source" of the weights (null without any).
    """
    found = list(_networks())
    if output.json:
        print(json.dumps(found))
        return
    print(f"{'network':<22}parameters  {'classes':<13}  license of the weights")
    for each in found:
        over = f" of pixels, over {each['backbone']}" if each["backbone"] else ""
        classes = f"{each['classes']:,} classes{over}"
        terms = f"{each['license']} ({each['source']})" if each["license"] else ""
        millions = each["parameters"] / 1e6
        print(f"{each['name']:<22}{millions:5.1f} M      {classes:<13}  {terms}".rstrip())


def _networks() -> Iterator[dict[str, Any]]:
    with author_half("listing networks"):
        import torch

        from pocketune.networks import about, list_networks
        from pocketune.networks.registry import published_classes
        from pocketune.weights import create_network
        from pocketune.weights.published import PUBLISHED

    with torch.device("meta"):  # shapes only
        for dense in (False, True):
            for name in list_networks(dense=dense):
                network = create_network(name, classes=published_classes(name))
                config, weights = about(network).config, PUBLISHED.get(name)
                yield {
                    "name": name,
                    "parameters": sum(p.numel() for p in network.parameters()),
                    "classes": published_classes(name),
                    "backbone": config.backbone if dense and config else None,
                    "license": weights.license if weights else None,
                    "source": weights.source if weights else None,
                }


@command()
def methods(output: JsonOption) -> None:
    """List the fine-tuning methods with their options.

    With --json: a list of objects with "name", "about" and "options" (their defaults by name).
    """
    found = list(_methods())
    if output.json:
        print(json.dumps(found))
        return
    for each in found:
        _print_wrapped(f"{each['name']:<11}", each["about"])
        if options := "  ".join(f"{key}={value}" for key, value in each["options"].items()):
            _print_wrapped(" " * 11, options)


def _methods() -> Iterator[dict[str, Any]]:
    with author_half("listing methods"):
        from pocketune.methods import create_method, describe_method, list_methods, method_to_dict

    for name in list_methods():
        options = method_to_dict(create_method(name))
        del options["name"]
        yield {"name": name, "about": describe_method(name), "options": options}


def _print_wrapped(name: str, text: str) -> None:
    """Print a text beside a name, in as many lines as the terminal's width asks for."""
    width = shutil.get_terminal_size().columns
    lines = textwrap.wrap(
        text,
        max(width, 2 * len(name)),
        initial_indent=name,
        subsequent_indent=" " * len(name),
        break_long_words=False,
        break_on_hyphens=False,
    )
    print("\n".join(lines))
