"""``pocketune kit build``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from pocketune.cli.author import author_half
from pocketune.cli.errors import tell
from pocketune.cli.expand import expand
from pocketune.cli.method import parse_method
from pocketune.cli.options import (
    METHOD_PANEL,
    KitStepOptions,
    Loss,
    MethodOptions,
    NetworkOptions,
)

PHOTOS_HELP = (
    "Labeled photos, as for train. They define the classes or attributes, calibrate 8-bit frozen "
    "layers, and restore batch norms that were folded into the weights."
)


@expand
def build(
    network: Annotated[
        str,
        typer.Argument(
            metavar="NETWORK", help="See [bold]pocketune networks[/bold].", show_default=False
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            metavar="KIT", help="Kit to write: a folder or a .zip file.", show_default=False
        ),
    ],
    photos: Annotated[
        str | None,
        typer.Option(metavar="PHOTOS", help=PHOTOS_HELP, show_default="1,000 numbered classes"),
    ] = None,
    save_network: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also save all weights of the network as .safetensors, for training with "
            "--engine torch.",
            show_default=False,
        ),
    ] = None,
    *,
    network_options: NetworkOptions,
    method_options: MethodOptions,
    step_options: KitStepOptions,
    loss: Annotated[
        Loss | None,
        typer.Option(
            help="Loss: cross_entropy for classes, binary_cross_entropy for attributes.",
            show_default="chosen by the photos; cross_entropy without",
            rich_help_panel=METHOD_PANEL,
        ),
    ] = None,
) -> None:
    """Compile a network's training step into a kit, for devices without PyTorch."""
    from pocketune.data import load_splits

    dataset = None if photos is None else load_splits(photos).train
    with author_half("building a kit"):
        from pocketune.authoring import build_kit
        from pocketune.networks import list_networks

    if network_options.weights is None and network in list_networks():
        tell(
            f"warning: {network} starts from random weights; choose pretrained ones with --weights"
        )
    size, batch = step_options.size, step_options.batch
    build_kit(
        out,
        network=network,
        **asdict(network_options),
        method=parse_method(**asdict(method_options), batch=batch, size=size),
        **asdict(step_options),
        photos=dataset,
        save_network=save_network,
        loss=loss,
    )
    method = method_options.method
    print(f"built a kit of {network}: {size} px, batch {batch}, method {method}", flush=True)
