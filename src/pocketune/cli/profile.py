"""`pocketune profile`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pocketune.cli.command import command
from pocketune.cli.method import parse_method
from pocketune.cli.options import (
    CONVENTIONS,
    ClassesOption,
    JsonOption,
    MethodOptions,
    NetworkOptions,
    NetworkOrFileArgument,
    ShapeOptions,
    StepOptions,
)
from pocketune.device.train.defaults import OPTIMIZERS
from pocketune.errors import author_half
from pocketune.options import option

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, kw_only=True)
class ProfileOptions:
    """What is counted and how it is shown."""

    optimizer: str = option("Optimizer.", default="adam", choices=OPTIMIZERS)
    published: str | None = option(
        "Count as this paper does, to compare with its tables, instead of actual memory.",
        default=None,
        choices=CONVENTIONS,
    )
    by: str = option(
        "Rows of the table: blocks or layers.", default="block", choices=("block", "layer")
    )
    plot: Path | None = option(
        "Plot memory by block and over the step, as .svg, .png or .pdf.",
        default=None,
        metavar="FILE",
    )


@command(
    "pocketune profile mobilenet_v2 --method blocks --blocks 3 --batch 8 --size 224",
    "pocketune profile mobilenet_v2 --method bias --plot step.svg",
    "pocketune profile resnet18 --method last --json | jq .total_bytes",
)
def profile(
    named: NetworkOrFileArgument,
    classes: ClassesOption,
    options: ProfileOptions,
    output: JsonOption,
    network: NetworkOptions,
    shape: ShapeOptions,
    method: MethodOptions,
    step: StepOptions,
) -> None:
    """Predict the memory and FLOPs of a training step without running it.

    The step is PyTorch's own, predicted from shapes alone. With --json: one object, whose
    "total_bytes" is the table's total.
    """
    if options.published is not None and options.plot is not None:
        raise click.BadParameter("cannot be combined with --published", param_hint="--plot")
    if options.published is not None and step.frozen_bits is not None:
        raise click.BadParameter(
            "cannot be combined with --published: each paper counts frozen parameters in its own "
            "way",
            param_hint="--frozen-bits",
        )
    with author_half("profiling a network"):
        from pocketune.accounting import account
        from pocketune.accounting.plot import check_figure, save_figure
        from pocketune.authoring import open_network
        from pocketune.methods import adapt
        from pocketune.papers import published_memory
        from pocketune.papers.report import draw_published, to_dict
    from pocketune.reporting.progress import busy

    if options.plot is not None:
        check_figure(options.plot)
    batch, size = step.batch, step.size
    made_of = {**asdict(classes), **asdict(network), **asdict(shape)}
    created = open_network(named.network, size=size, **made_of)
    chosen = parse_method(**asdict(method), batch=batch, size=size)
    adapted = adapt(created, chosen, frozen_bits=step.frozen_bits)
    if options.published is not None:
        with busy("counting as the paper does"):
            counted = published_memory(adapted, options.published, batch=batch, size=size)
        _show(to_dict(counted), draw_published(counted, by=options.by), as_json=output.json)
        return
    with busy("predicting the step"):
        report = account(adapted, batch=batch, size=size, optimizer=options.optimizer)
    if options.plot is not None:
        save_figure(report, options.plot)
    _show(report.to_dict(), report.draw(by=options.by), as_json=output.json)


def _show(values: dict[str, Any], drawn: RenderableType, *, as_json: bool) -> None:
    from rich.console import Console

    if as_json:
        print(json.dumps(values))
    else:
        Console().print(drawn)
