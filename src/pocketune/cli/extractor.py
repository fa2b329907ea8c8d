"""`pocketune adapt-extractor`."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pocketune.cli.command import command
from pocketune.cli.errors import print_error
from pocketune.cli.method import parse_method
from pocketune.cli.options import LABELED, JsonOption, argument, of_method
from pocketune.errors import author_half
from pocketune.extractor.settings import ExtractorSettings
from pocketune.options import option
from pocketune.threads import wait_asleep

if TYPE_CHECKING:
    from pocketune.extractor import Record


@dataclass(frozen=True, kw_only=True)
class AdaptOptions:
    """The photos, the supernet and what is written."""

    photos: str | Path = argument(LABELED, metavar="PHOTOS")
    supernet: Path = option("Supernet: a .safetensors file with its space.", metavar="FILE")
    out: Path = option("Kit to write: a folder or a .zip file.", metavar="KIT")
    work: Path | None = option(
        "Folder of what is measured. A search that was stopped goes on there, and so does one with "
        "other limits.",
        default=None,
        metavar="DIR",
        unset="the name of KIT and .search",
    )
    run: Path | None = option(
        "Also train the kit on the photos, into this run folder.", default=None, metavar="RUN"
    )


@dataclass(frozen=True, kw_only=True)
class KitMethod:
    """What the kit trains."""

    method: str = of_method(
        "Method that the kit trains: see [bold]pocketune methods[/bold].",
        default="tinytl",
        metavar="NAME",
    )
    method_option: list[str] | None = of_method(
        "Option of the method; can be repeated.", default=None, metavar="NAME=VALUE"
    )


@command(
    "pocketune adapt-extractor photos/ --supernet supernet.safetensors \\",
    "    --budget 96MB --time 1h --out kit/",
    "pocketune adapt-extractor photos/ --supernet supernet.safetensors \\",
    "    --budget 80MB --work kit.search --out smaller/",
    goes_on=True,
)
def adapt_extractor(
    options: AdaptOptions, settings: ExtractorSettings, method: KitMethod, output: JsonOption
) -> None:
    """Choose the sub-network of a supernet that learns the photos best within limits.

    The supernet is adapted to four fifths of the training photos, sub-networks are measured on the
    others, and a search over predicted accuracies finds the best one whose training keeps the
    limits. It becomes a kit, which starts from the adapted values; train it with
    [bold]pocketune train PHOTOS --kit KIT[/bold], or name a run with --run.

    A search that was stopped goes on when the command is repeated.

    With --json: one object, the content of search.json.
    """
    from pocketune.device.train.display import console

    began = time.monotonic()
    wait_asleep()
    with author_half("adapting a feature extractor"):
        from pocketune.extractor import adapt_extractor as adapt
    if settings.seconds is not None:  # importing PyTorch counts too
        left = settings.seconds - (time.monotonic() - began)
        settings = replace(settings, time=max(1.0, left))

    record = adapt(
        options.photos,
        options.out,
        settings,
        supernet=options.supernet,
        method=parse_method(method.method, None, method.method_option, batch=settings.batch),
        work=options.work,
        run=options.run,
        progress=console(sys.stderr) if output.json else None,
    )
    if output.json:
        print(json.dumps(asdict(record)))
    else:
        _show(record, options.out)


def _show(record: Record, out: Path) -> None:
    from pocketune.device.memory.sizes import format_size

    chosen, config = record.chosen, record.chosen.forecast.config
    print(
        f"chosen: {config.size} px, depths {_listed(config.depths)}, kernels "
        f"{_listed(config.kernels)}, expansions {_listed(config.expansions)}"
    )
    print(
        f"{chosen.accuracy:.1%} on the held-out photos ({chosen.predicted:.1%} predicted), "
        f"{format_size(chosen.forecast.memory)} for the whole training process (predicted), "
        f"{chosen.forecast.macs / 1e6:.1f} million multiplications for an image"
    )
    for each in record.front:
        print(f"with {format_size(each.forecast.memory)}: {each.predicted:.1%} predicted")
    if record.ranking is not None:
        ranks = ", ".join(
            f"{name} {value:.2f}" for name, value in record.ranking.correlations.items()
        )
        print(f"rank correlation of the predictors in cross-validation: {ranks}")
    if record.is_ranked_by_chance:
        print(
            f"the predictions from {len(record.pairs)} sub-networks are no better than chance: "
            "what was measured on the held-out photos decided"
        )
    minutes = sum(record.seconds.values()) / 60
    print(
        f"{len(record.pairs)} sub-networks measured, {len(record.forecasts)} forecast, "
        f"{minutes:.1f} minutes, {sum(record.macs.values()) / 1e12:.3g}T multiplications by the "
        "paper's formulas with a run of as many epochs"
    )
    print_error(f"built {out}")


def _listed(numbers: tuple[int, ...]) -> str:
    return " ".join(map(str, numbers))
