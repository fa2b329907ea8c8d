"""Make a report of what Pocketune has written: a run, a plan or a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pocketune.arithmetic import usual_arithmetic
from pocketune.errors import PocketuneError, Remedy
from pocketune.kit.names import LAST, METRICS, RESULT
from pocketune.kit.storage import run_file
from pocketune.reporting.comparison import comparison_page
from pocketune.reporting.page import Page, require_packages, write
from pocketune.reporting.plan import plan_page
from pocketune.reporting.progress import busy
from pocketune.reporting.run import run_page
from pocketune.resumable import COMPARISON, PLAN

if TYPE_CHECKING:
    from pocketune.arrays import StrPath

NAME = "report.html"


@usual_arithmetic
def report(path: StrPath, out: StrPath | None = None, *, photos: StrPath | None = None) -> Path:
    """Write a report as one HTML file, which loads nothing and sends nothing.

    Example:
        >>> report("runs/flowers")  # doctest: +SKIP
        PosixPath('runs/flowers/report.html')

    Args:
        path: A run folder or a .zip of it; or `plan.json` or `compare.json`, or a folder that
            holds it.
        out: The file to write; by default `report.html` beside what it is about, or
            beside a .zip a file of its name that ends in .html.
        photos: New location of a run's photos, if they have moved.

    Returns:
        The file.

    Raises:
        PocketuneError: There is nothing to report at the path, it is damaged, a package of the
            extra `report` is missing, or the file cannot be written.
    """
    require_packages()
    path = Path(path)
    if out is not None:
        _check_replaced(Path(out))
    page, beside = _page(path, photos)
    file = Path(out) if out is not None else beside
    write(page, file)
    return file


def _check_replaced(file: Path) -> None:
    """Check that a report replaces nothing but a page, such as the network of a run."""
    if file.exists() and file.suffix.lower() not in (".html", ".htm"):
        raise PocketuneError(f"{file} exists and is not a page: choose a name that ends in .html")


def _page(path: Path, photos: StrPath | None) -> tuple[Page, Path]:
    """The page, and the file to write it to."""
    if any(run_file(path, name) for name in (RESULT, LAST, METRICS)):
        if run_file(path, RESULT) is None:
            raise PocketuneError(
                f"the run in {path} is not finished",
                remedy=Remedy("resume", "resume with: pocketune.resume({run!r})", run=str(path)),
            )
        file = path / NAME if path.is_dir() else path.with_suffix(".html")
        return run_page(path, photos), file
    for name, page in ((PLAN, plan_page), (COMPARISON, comparison_page)):
        file = path / name if path.is_dir() else path
        if file.name == name and file.is_file():
            if photos is not None:
                raise PocketuneError(f"{file} is not a run, which photos are of: leave them out")
            with busy("drawing the page"):
                return page(file), file.parent / NAME
    raise PocketuneError(
        f"{path} is neither a run nor a plan nor a comparison: give the folder of one"
    )
