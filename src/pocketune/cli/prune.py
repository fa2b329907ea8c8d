"""`pocketune prune`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pocketune.cli.command import command
from pocketune.cli.method import parse_method
from pocketune.cli.options import (
    RANKINGS,
    MaskReading,
    NetworkArgument,
    NetworkOptions,
    ShapeOptions,
    of_method,
)
from pocketune.errors import PocketuneError, author_half
from pocketune.options import option

if TYPE_CHECKING:
    from pocketune.pruning import PruningPlan


@dataclass(frozen=True, kw_only=True)
class PruneOptions:
    """The target, the ranking of channels, and the output."""

    out: Path = option("Output .safetensors file.", metavar="FILE")
    photos: str | Path | None = option(
        "Photos for ranking channels: a few hundred of any kind, in class folders.",
        default=None,
        metavar="PHOTOS",
        unset="none, with --importance weight",
    )
    target: str = option(
        "Memory limit of each block for one image, such as 2MB; or [bold]cumulative[/bold]: the "
        "memory that the network keeps for the backward pass, as in the Rep-Net paper.",
        default="cumulative",
        metavar="SIZE|cumulative",
    )
    importance: str = option(
        "Rank channels by the norm of their activations on photos, or of their weights.",
        default="l2",
        choices=RANKINGS,
    )
    size: int = option("Image height and width.", default=224, metavar="PIXELS")


@dataclass(frozen=True, kw_only=True)
class TargetMethod:
    """The method whose memory is the target."""

    method: str | None = of_method(
        "Method whose memory is the target.",
        default=None,
        metavar="NAME",
        unset="repnet, or tinytl for weights with lite residual modules",
    )
    method_option: list[str] | None = of_method(
        "Option of the method; can be repeated.", default=None, metavar="NAME=VALUE"
    )


@command(
    "pocketune prune mobilenet_v2 --weights imagenet --photos photos/ \\",
    "    --out pruned.safetensors",
    "pocketune train photos/ --network mobilenet_v2 --weights pruned.safetensors \\",
    "    --method repnet",
)
def prune(
    named: NetworkArgument,
    options: PruneOptions,
    network: NetworkOptions,
    shape: ShapeOptions,
    target: TargetMethod,
    reading: MaskReading,
) -> None:
    """Remove channels from the blocks that set the peak memory of fine-tuning.

    The output file can be passed as --weights to the other commands.
    """
    from pocketune.data import load_splits

    photos, size = options.photos, options.size
    if photos is None and options.importance == "l2":
        raise PocketuneError("--importance l2 needs --photos; add them, or use --importance weight")
    if target.method is None and target.method_option:
        raise PocketuneError("--method-option needs --method")
    reading.check_photos(photos)
    dataset = None if photos is None else load_splits(photos, masks=reading.options).train
    with author_half("pruning"):
        from pocketune.pruning import plan_pruning
        from pocketune.surgery import prune as prune_network
        from pocketune.weights import sample_batches, save_network
        from pocketune.weights.measured import create_measured
        from pocketune.weights.saved import check_saveable
    from pocketune.reporting.progress import busy

    method = None
    if target.method is not None:
        method = parse_method(target.method, None, target.method_option, size=size)
    created = create_measured(
        named.network, **asdict(network), **asdict(shape), size=size, photos=dataset
    )
    check_saveable(created, options.out)
    with busy("finding channels to remove"):
        plan = plan_pruning(created, options.target, size=size, method=method)
        batches = None if dataset is None else sample_batches(created, dataset, size=size)
        pruned = prune_network(created, plan.ratios, importance=options.importance, batches=batches)
    save_network(pruned, options.out)
    _print_plan(plan, options.out)


def _print_plan(plan: PruningPlan, out: Path) -> None:
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
