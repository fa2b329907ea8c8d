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
        typer.Option(metavar="FILE", help="Output .safetensors file.", show_default=False),
    ],
    photos: Annotated[
        str | None,
        typer.Option(
            metavar="PHOTOS",
            help="Photos for ranking channels: a few hundred of any kind, in class folders.",
            show_default="none, with --importance weight",
        ),
    ] = None,
    target: Annotated[
        str,
        typer.Option(
            metavar="SIZE|cumulative",
            help="Memory limit of each block for one image, such as 2MB; or "
            "[bold]cumulative[/bold]: the memory that the network keeps for the backward pass, "
            "as in the Rep-Net paper.",
        ),
    ] = "cumulative",
    importance: Annotated[
        Importance,
        typer.Option(
            help="Rank channels by the norm of their activations on photos, or of their weights."
        ),
    ] = "l2",
    *,
    network_options: NetworkOptions,
    method: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Method whose memory is the target.",
            show_default="repnet, or tinytl for weights with lite residual modules",
            rich_help_panel=METHOD_PANEL,
        ),
    ] = None,
    method_option: MethodOption = None,
    size: Annotated[int, typer.Option(metavar="PIXELS", help="Image height and width.")] = 224,
) -> None:
    """Remove channels from the blocks that set the peak memory of fine-tuning.

    The output file can be passed as --weights to the other commands.
    """
    from pocketune.data import load_splits

    if photos is None and importance == "l2":
        raise PocketuneError("--importance l2 needs --photos; add them, or use --importance weight")
    if method is None and method_option:
        raise PocketuneError("--method-option needs --method")
    dataset = None if photos is None else load_splits(photos).train
    with author_half("pruning"):
        from pocketune.pruning import plan_pruning
        from pocketune.surgery import prune as prune_network
        from pocketune.weights import sample_batches, save_network
        from pocketune.weights.measured import create_measured

    created = create_measured(network, **asdict(network_options), size=size, photos=dataset)
    by = None if method is None else parse_method(method, None, method_option, size=size)
    plan = plan_pruning(created, target, size=size, method=by)
    batches = None if dataset is None else sample_batches(created, dataset, size=size)
    pruned = prune_network(created, plan.ratios, importance=importance, batches=batches)
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
        f"(in {before.name} -> {after.name})"
    )
    print(f"saved in {out}")
