"""``pocketune profile``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pocketune.cli.author import author_half
from pocketune.cli.expand import expand
from pocketune.cli.method import parse_method
from pocketune.cli.options import (
    Convention,
    Json,
    MethodOptions,
    NetworkOptions,
    Optimizer,
    Row,
    StepOptions,
)

if TYPE_CHECKING:
    from rich.console import RenderableType


@expand
def profile(
    network: Annotated[
        str,
        typer.Argument(
            metavar="NETWORK", help="See [bold]pocketune networks[/bold].", show_default=False
        ),
    ],
    *,
    network_options: NetworkOptions,
    classes: Annotated[int, typer.Option(metavar="N", help="Number of classes.")] = 1000,
    method_options: MethodOptions,
    step_options: StepOptions,
    optimizer: Annotated[Optimizer, typer.Option(help="Optimizer.")] = "adam",
    published: Annotated[
        Convention | None,
        typer.Option(
            help="Count as this paper does, to compare with its tables, instead of actual memory.",
            show_default=False,
        ),
    ] = None,
    by: Annotated[Row, typer.Option(help="Rows of the table: blocks or layers.")] = "block",
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Plot memory by block and over the step, as .svg, .png or .pdf.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Predict the memory and FLOPs of a training step without running it.

    The step is PyTorch's own, predicted from shapes alone. With --json: one object, whose
    "total_bytes" is the table's total.
    """
    if published is not None and plot is not None:
        raise typer.BadParameter("cannot be combined with --published", param_hint="--plot")
    if published is not None and step_options.frozen_bits is not None:
        raise typer.BadParameter(
            "cannot be combined with --published: papers count frozen parameters each in its way",
            param_hint="--frozen-bits",
        )
    with author_half("profiling a network"):
        from pocketune.accounting import account
        from pocketune.accounting.plot import save_figure
        from pocketune.methods import adapt
        from pocketune.papers import published_memory
        from pocketune.papers.report import draw_published, to_dict
        from pocketune.weights import create_network

    batch, size = step_options.batch, step_options.size
    created = create_network(network, **asdict(network_options), classes=classes)
    chosen = parse_method(**asdict(method_options), batch=batch, size=size)
    adapted = adapt(created, chosen, frozen_bits=step_options.frozen_bits)
    if published is not None:
        counted = published_memory(adapted, published, batch=batch, size=size)
        _show(to_dict(counted), draw_published(counted, by=by), as_json=as_json)
        return
    report = account(adapted, batch=batch, size=size, optimizer=optimizer)
    if plot is not None:
        save_figure(report, plot)
    _show(report.to_dict(), report.draw(by=by), as_json=as_json)


def _show(values: dict[str, Any], drawn: RenderableType, *, as_json: bool) -> None:
    from rich.console import Console

    if as_json:
        print(json.dumps(values))
    else:
        Console().print(drawn)
