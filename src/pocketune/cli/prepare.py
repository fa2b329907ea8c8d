"""`pocketune prepare`."""

from __future__ import annotations

import shlex
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pocketune.cli.command import command
from pocketune.cli.errors import print_error, print_skipped
from pocketune.cli.options import argument
from pocketune.errors import counted
from pocketune.files import stem_of
from pocketune.options import option

if TYPE_CHECKING:
    from pocketune.data.prepare import Prepared


@dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """The photos, and how small the copies are."""

    photos: str | Path = argument(
        "Labeled photos, as for train: a folder, a CSV or a .zip.", metavar="PHOTOS"
    )
    out: Path | None = option(
        "Folder to write; a stopped command goes on there.",
        default=None,
        metavar="DIR",
        unset="the name of PHOTOS and -small",
    )
    size: int = option(
        "Shorter side of the copies; at twice the size of the kit, no crop is enlarged.",
        default=256,
        metavar="PIXELS",
        at_least=1,
    )
    lossless: bool = option("Save all copies as PNG, JPEGs too.", default=False)
    budget: str | None = option(
        "Limit for the memory of the process, such as 96MB; photos that take more to decode are "
        "skipped.",
        default=None,
        metavar="SIZE",
        unset="no limit",
    )
    max_pixels: str | None = option(
        "Skip photos of more pixels, such as 12MP, except ordinary JPEGs and PNGs, which are not "
        "decoded in full.",
        default=None,
        metavar="PIXELS",
        unset="33MP; fewer if they are not RGB, more if they are JPEGs",
    )


@command(
    "pocketune prepare photos/ --size 256",
    "pocketune prepare photos.zip --out small/ --lossless",
    goes_on=True,
)
def prepare(options: PrepareOptions) -> None:
    """Write small copies of photos once, which train faster and in less memory.

    Labels, folders, tables and masks stay as they are. Photos that are small already are copied.
    """
    from pocketune.data.prepare import prepare as prepare_photos
    from pocketune.device.memory.budget import check_peak, decoding_room
    from pocketune.device.memory.sizes import parse_pixels, parse_size
    from pocketune.device.train.display import console

    budget = None if options.budget is None else parse_size(options.budget)
    room = None if budget is None else decoding_room(budget)
    out = options.out or Path(f"{stem_of(options.photos)}-small")
    with closing(console()) as shown:
        done = prepare_photos(
            options.photos,
            out,
            size=options.size,
            lossless=options.lossless,
            max_pixels=None if options.max_pixels is None else parse_pixels(options.max_pixels),
            room=room,
            after_file=shown.counting("small copies"),
        )
    check_peak(budget)
    print(_told(done, options.size))
    print_skipped(done.skipped)
    print(f"saved in {out}", flush=True)
    print_error(f"try: pocketune train {shlex.quote(str(_labeled(Path(options.photos), out)))}")


def _labeled(photos: Path, out: Path) -> Path:
    """The copies as they are labeled like the photos: by the table, where one was given.

    In the folder of copies, folders could tell the classes in its place.
    """
    from pocketune.data.sources import is_archive

    return out / photos.name if photos.is_file() and not is_archive(photos) else out


def _told(done: Prepared, size: int) -> str:
    """How many files there are of each kind."""
    if not done.shrunk and not done.there:
        why = f"none of these has more than {size} px on both sides"
        return f"no file was shrunk, {done.kept} copied: {why}"
    earlier = f", {done.there} there already" if done.there else ""
    return f"{counted(done.shrunk, 'file')} shrunk, {done.kept} copied{earlier}"
