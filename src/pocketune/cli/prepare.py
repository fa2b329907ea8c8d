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
    from pocketune.device.train.display import console

    with closing(console()) as shown:
        done = prepare_photos(
            options.photos,
            options.out,
            size=options.size,
            lossless=options.lossless,
            after_file=shown.counting("small copies"),
        )
    earlier = f", {done.there} there already" if done.there else ""
    print(f"{counted(done.shrunk, 'file')} shrunk, {done.kept} copied{earlier}")
    print_skipped(done.skipped)
    print(f"saved in {options.out}")
