"""`pocketune networks` and `methods`."""

import shutil
import textwrap

from pocketune.cli.command import command
from pocketune.errors import author_half


@command()
def networks() -> None:
    """List the networks with their parameter counts, and the license of their weights."""
    with author_half("listing networks"):
        import torch

        from pocketune.networks import about, list_networks
        from pocketune.networks.registry import published_classes
        from pocketune.weights import create_network
        from pocketune.weights.published import PUBLISHED

    print(f"{'network':<22}parameters  {'classes':<13}  license of the weights")
    with torch.device("meta"):  # shapes only
        for dense in (False, True):
            for name in list_networks(dense=dense):
                network = create_network(name, classes=published_classes(name))
                count = sum(p.numel() for p in network.parameters())
                config = about(network).config
                over = f" of pixels, over {config.backbone}" if dense and config else ""
                classes = f"{published_classes(name):,} classes{over}"
                weights = PUBLISHED.get(name)
                terms = f"{weights.license} ({weights.source})" if weights else ""
                line = f"{name:<22}{count / 1e6:5.1f} M      {classes:<13}  {terms}"
                print(line.rstrip())


@command()
def methods() -> None:
    """List the fine-tuning methods with their options."""
    with author_half("listing methods"):
        from pocketune.methods import create_method, describe_method, list_methods, method_to_dict

    for name in list_methods():
        _print_wrapped(f"{name:<11}", describe_method(name))
        knobs = method_to_dict(create_method(name)).items()
        if options := "  ".join(f"{key}={value}" for key, value in knobs if key != "name"):
            _print_wrapped(" " * 11, options)


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
