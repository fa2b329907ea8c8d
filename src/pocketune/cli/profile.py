"""``pocketune profile``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pocketune.cli.author import author_half
from pocketune.cli.method import parse_method
from pocketune.cli.options import (
    Batch,
    Blocks,
    Convention,
    Json,
    Method,
    MethodOptions,
    Optimizer,
    Padded,
    Row,
    Size,
    Weights,
    Width,
)


def profile(
    network: Annotated[
        str,
        typer.Argument(
            metavar="NETWORK", help="See [bold]pocketune networks[/bold].", show_default=False
        ),
    ],
    width: Width = 1.0,
    weights: Weights = None,
    padding: Padded = "symmetric",
    classes: Annotated[int, typer.Option(metavar="N", help="Outputs of the network.")] = 1000,
    method: Method = "blocks",
    blocks: Blocks = None,
    method_option: MethodOptions = None,
    batch: Batch = 8,
    size: Size = 224,
    optimizer: Annotated[Optimizer, typer.Option(help="What updates the parameters.")] = "adam",
    published: Annotated[
        Convention | None,
        typer.Option(
            help="Count as this paper does, to compare with its tables, instead of what is real.",
            show_default=False,
        ),
    ] = None,
    by: Annotated[Row, typer.Option(help="A row for each block or each layer.")] = "block",
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Draw the memory by block and along the step; .svg, .png or .pdf.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Tell what a training step costs in memory and FLOPs, before anything is trained.

    Predicted for PyTorch's own step, from shapes alone. With --json: one object, whose
    "total_bytes" is the table's total.
    """
    if published is not None and plot is not None:
        raise typer.BadParameter("it draws what is real, not --published", param_hint="--plot")
    with author_half("profiling a network"):
        from pocketune.accounting import account, published_memory
        from pocketune.accounting.plot import save_figure
        from pocketune.accounting.report import print_account, print_published
        from pocketune.methods import adapt
        from pocketune.networks import create_network

    created = create_network(
        network, weights=weights, width=width, padding=padding, classes=classes
    )
    adapted = adapt(created, parse_method(method, blocks, method_option, batch=batch, size=size))
    if published is not None:
        counted = published_memory(adapted, published, batch=batch, size=size)
        print_published(counted, by=by, as_json=as_json)
        return
    costs = account(adapted, batch=batch, size=size, optimizer=optimizer)
    if plot is not None:
        save_figure(costs, plot)
    print_account(costs, by=by, as_json=as_json)
