"""``pocketune prune``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pocketune.cli.author import author_half
from pocketune.cli.expand import expand
from pocketune.cli.method import parse_method
from pocketune.cli.options import METHOD_PANEL, Importance, MethodOption, NetworkOptions
from pocketune.errors import PocketuneError

if TYPE_CHECKING:
    from pocketune.pruning import PruningPlan


@expand
def prune(
    network: Annotated[
        str, typer.Argument(metavar="NETWORK", help="See [bold]pocketune networks[/bold].")
    ],
    out: Annotated[
        Path,
        typer.Option(metavar="FILE", help="The .safetensors file to write.", show_default=False),
    ],
    photos: Annotated[
        str | None,
        typer.Option(
            metavar="PHOTOS",
            help="Photos to choose channels by: a few hundred of any kind, in class folders.",
            show_default="none, with --importance weight",
        ),
    ] = None,
    target: Annotated[
        str,
        typer.Option(
            metavar="SIZE|cumulative",
            help="What no block may take for one image, such as 2MB; or [bold]cumulative[/bold]: "
            "what the network keeps for the backward pass, as Rep-Net's authors chose.",
        ),
    ] = "cumulative",
    importance: Annotated[
        Importance, typer.Option(help="Activations' norm over the photos, or weights' norm.")
    ] = "l2",
    *,
    network_options: NetworkOptions,
    method: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="By what it will be fine-tuned, for the memory.",
            show_default="repnet, or tinytl for weights with lite residual modules",
            rich_help_panel=METHOD_PANEL,
        ),
    ] = None,
    method_option: MethodOption = None,
    size: Annotated[int, typer.Option(metavar="PIXELS", help="Side of the images.")] = 224,
) -> None:
    """Remove channels from the blocks whose temporary memory sets the peak of fine-tuning.

    The file that is written serves as --weights of every other command.
    """
    from pocketune.data import load_splits

    if photos is None and importance == "l2":
        raise PocketuneError("--importance l2 needs --photos; name some, or --importance weight")
    if method is None and method_option:
        raise PocketuneError("--method-option is an option of the method: name one by --method")
    dataset = None if photos is None else load_splits(photos).train
    with author_half("pruning"):
        from pocketune.compiler.build import create_measured, spread_batches
        from pocketune.networks import save_network
        from pocketune.pruning import plan_pruning
        from pocketune.surgery import prune as prune_network

    created = create_measured(network, **asdict(network_options), size=size, photos=dataset)
    by = None if method is None else parse_method(method, None, method_option, size=size)
    plan = plan_pruning(created, target, size=size, method=by)
    images = None if dataset is None else spread_batches(created, dataset, size)
    pruned = prune_network(created, plan.ratios, importance=importance, images=images)
    save_network(pruned, out)
    _tell(plan, out)


def _tell(plan: PruningPlan, out: Path) -> None:
    before, after = plan.before.peak, plan.after.peak
    for block, (count, left) in plan.channels.items():
        print(f"{block:<14} {count:>5} -> {left:>4} hidden channels ({1 - left / count:.0%} less)")
    if not plan.channels:
        print(f"no block takes more than {plan.target_bytes:,} bytes: nothing is removed")
    print(
        f"peak for one image {before.peak_bytes:,} -> {after.peak_bytes:,} bytes "
        f"(in {before.path} -> {after.path})"
    )
    print(f"saved in {out}")
