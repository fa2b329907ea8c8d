"""`pocketune prepare`."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from pocketune.cli.command import command
from pocketune.cli.errors import print_skipped
from pocketune.cli.options import argument
from pocketune.errors import counted
from pocketune.options import option


@dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """The photos, and how small the copies are."""

    photos: str | Path = argument(
        "Labeled photos, as for train: a folder, a CSV or a .zip.", metavar="PHOTOS"
    )
    out: Path = option(
        "Folder to write; a stopped command goes on there.", default=Path("small"), metavar="DIR"
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
    "pocketune prepare photos/ --size 256 --out small/",
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
    with closing(console()) as shown:
        done = prepare_photos(
            options.photos,
            options.out,
            size=options.size,
            lossless=options.lossless,
            max_pixels=None if options.max_pixels is None else parse_pixels(options.max_pixels),
            room=room,
            after_file=shown.counting("small copies"),
        )
    check_peak(budget)
    earlier = f", {done.there} there already" if done.there else ""
    print(f"{counted(done.shrunk, 'file')} shrunk, {done.kept} copied{earlier}")
    print_skipped(done.skipped)
    print(f"saved in {options.out}")
