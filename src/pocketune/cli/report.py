"""`pocketune report`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pocketune.cli.command import command
from pocketune.cli.options import argument
from pocketune.options import option


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """What to report, and where to write it."""

    path: Path = argument(
        "The folder of a finished run, a plan or a comparison; or a .zip of a run.",
        metavar="RUN|PLAN|COMPARISON",
    )
    out: Path | None = option(
        "File to write.", default=None, metavar="FILE", unset="report.html in the folder"
    )
    photos: str | Path | None = option(
        "New location of the run's photos, if they have moved.", default=None, metavar="PHOTOS"
    )


@command(
    "pocketune report runs/flowers",
    "pocketune report runs/flowers --out flowers.html --photos /mnt/photos",
    "pocketune report runs/flowers.plan",
)
def report(options: ReportOptions) -> None:
    """Write a run, a plan or a comparison as one HTML page.

    The file loads nothing from the network. It shows small pictures of some of the photos; keep
    that in mind when you share it.
    """
    from pocketune.device.memory.sizes import format_size
    from pocketune.reporting import report as write_report

    file = write_report(options.path, options.out, photos=options.photos)
    print(f"wrote {file} ({format_size(file.stat().st_size)}); open it in any browser")
