"""Small copies of photos, which take less time and memory to decode than the originals."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from PIL import Image

from pocketune.data.contents import labeled_files
from pocketune.data.images.cost import (
    MASK_BYTES,
    check_size,
    decoding_bytes,
    turn_for,
)
from pocketune.data.images.decode import oriented_size
from pocketune.data.images.opening import UnreadableImage, open_image, reading_image
from pocketune.data.images.pillow_headers import header_of
from pocketune.data.images.transforms import resized
from pocketune.data.labels.rows import is_table
from pocketune.data.masks.numbered import gray_step
from pocketune.data.sources import FolderSource, is_hidden
from pocketune.errors import PocketuneError, Remedy, check_positive, printable
from pocketune.files import Skipped, make_folder_of, reading, replacing, shown, writing
from pocketune.tasks import Box

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pocketune.arrays import StrPath
    from pocketune.data.images.headers import Header
    from pocketune.data.sources import Source

SIZE = 256
QUALITY = 95
_MARK = ".prepared.json"
_GONE = "the original is gone; delete the copy"
_BESIDE = 6_000_000
"""Bytes that the other thread, the copy and the decoders' code take beside decoding a photo."""
_CHUNK = 1 << 16
_TOGETHER = 64  # files whose results wait for each other


class Prepared(NamedTuple):
    """What was written.

    Attributes:
        shrunk: Photos and masks that are smaller than the original.
        kept: Files that are the original, byte by byte.
        there: Files that an earlier call has written.
        skipped: Files without a copy, and copies without an original, each with the reason.
    """

    shrunk: int
    kept: int
    there: int
    skipped: tuple[Skipped, ...]


@dataclass(frozen=True)
class _Job:
    """What a folder of copies is made of; another cannot be mixed with it."""

    photos: str
    size: int
    lossless: bool


def prepare(
    photos: StrPath,
    out: StrPath,
    *,
    size: int = SIZE,
    lossless: bool = False,
    max_pixels: int | None = None,
    room: int | None = None,
    workers: int = 2,
    after_file: Callable[[int, int], None] = lambda _done, _all: None,
) -> Prepared:
    """Write copies of labeled photos, whose shorter side is `size` pixels, under the same names.

    Folders, tables and masks stay as they are, so that the copies are labeled and divided like the
    originals. A photo that is small already is copied byte by byte; training on it gives the same
    pixels. A JPEG that is shrunk is saved as JPEG again, which loses a little, and any other photo
    as PNG, whatever its name ends in. Masks are shrunk without mixing classes.

    Args:
        photos: A folder, a CSV or a .zip of labeled photos.
        out: The folder to write. If a call was stopped, the next one goes on there; files that
            have changed since are copied again.
        size: The shorter side of the copies.
        lossless: Save all copies as PNG.
        max_pixels: Skip photos of more pixels that would be decoded in full; see `check_size`.
        room: Bytes for decoding; photos that take more are skipped.
        workers: Number of decoding threads.
        after_file: Called after some files with the number of those that are done, and of all.

    Raises:
        PocketuneError: The photos cannot be found, the folder holds something else, or it cannot be
            written.
    """
    check_positive(size=size, workers=workers)
    source, names, masks = labeled_files(Path(photos))
    folder = Path(out)
    place = Path(photos).resolve()
    if place.is_dir() and folder.resolve().is_relative_to(place):
        raise PocketuneError(
            f"{shown(str(folder))} is inside the folder of the photos; give one beside it"
        )
    _begin(folder, _Job(str(place), size, lossless))
    are_masks = frozenset(masks.values())
    check = partial(_check, size=size, max_pixels=max_pixels, room=room)

    def copy(name: str) -> str | Skipped:
        target = folder / name
        if _is_current(target, source, name):
            return "there"
        try:
            make_folder_of(target)
            mask = name in are_masks
            return _copy(source, name, target, size, lossless=lossless, mask=mask, check=check)
        except UnreadableImage as error:
            return Skipped(printable(name), error.reason)

    done: list[str | Skipped] = []
    with ThreadPoolExecutor(workers) as pool:
        for start in range(0, len(names), _TOGETHER):
            done += pool.map(copy, names[start : start + _TOGETHER])
            after_file(len(done), len(names))
    results = dict(zip(names, done, strict=True))
    _remove_halves(folder, masks, results)
    done = list(results.values())
    shrunk, kept, there = (done.count(kind) for kind in ("shrunk", "kept", "there"))
    skipped = [each for each in done if isinstance(each, Skipped)]
    skipped += [Skipped(printable(name), _GONE) for name in _others(folder, names)]
    return Prepared(shrunk, kept, there, tuple(skipped))


def _remove_halves(
    folder: Path, masks: Mapping[str, str], results: dict[str, str | Skipped]
) -> None:
    """Remove the copies of a photo and its mask if one of them was skipped, and skip the other.

    A folder with one of them alone is refused where it is read; the one that was skipped may have
    an earlier copy. A table may name one mask for several photos.
    """
    lost = {name for name, result in results.items() if isinstance(result, Skipped)}
    whole = {pair for pair in masks.items() if lost.isdisjoint(pair)}
    needed = {mask for _, mask in whole}
    for photo, mask in masks.items() - whole:
        for name, other, kind in ((photo, mask, "mask"), (mask, photo, "photo")):
            if name in needed:
                continue
            if name not in lost:
                results[name] = Skipped(printable(name), f"its {kind} {shown(other)} was skipped")
            with writing(folder / name):
                (folder / name).unlink(missing_ok=True)


def _is_current(target: Path, source: Source, name: str) -> bool:
    """Whether a file was copied after it, or the archive that it is in, has changed.

    A file that is moved or copied to its place may keep the time of its content.
    """
    original = source.root / name if isinstance(source, FolderSource) else source.root
    with suppress(OSError):
        found = original.stat()
        return target.stat().st_mtime_ns >= max(found.st_mtime_ns, found.st_ctime_ns)
    return False


def _others(folder: Path, names: list[str]) -> list[str]:
    """Files in the folder of the copies that are copies of none of these."""
    there = (each.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_file())
    return sorted({name for name in there if not is_hidden(name)} - set(names))


def _begin(folder: Path, job: _Job) -> None:
    """Check that a folder is new, or was begun with the same job."""
    mark = folder / _MARK
    with reading(shown(str(folder)), ValueError):
        known = json.loads(mark.read_text()) if mark.exists() else None
        used = known is None and folder.exists() and any(folder.iterdir())
    if used or (known is not None and known != asdict(job)):
        what = "holds copies of other photos or of another size" if known else "is not empty"
        raise PocketuneError(
            f"{shown(str(folder))} {what}", remedy=Remedy("new folder", "give a new folder")
        )
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if known is None:
        with replacing(mark) as file:
            file.write_text(json.dumps(asdict(job)) + "\n")


def _check(header: Header, *, size: int, max_pixels: int | None, room: int | None) -> None:
    """Refuse a photo that is not to be decoded.

    Raises:
        ValueError: It is too large, or decoding it takes too much memory.
    """
    check_size(header, max_pixels, remedy="make it smaller")
    shorter = min(header.width, header.height)
    if room is None or shorter <= size:
        return
    scale = size / shorter
    columns = round(scale * max(header.width, header.height))
    taken = decoding_bytes(header, scale, columns) + _BESIDE
    if taken > room:
        raise ValueError(
            f"decoding its {header.width} x {header.height} pixels takes about "
            f"{taken / 1e6:.0f} MB, more than the {room / 1e6:.0f} MB that the budget leaves; give "
            "a larger one, or make the copy on another machine"
        )


def _copy(
    source: Source,
    name: str,
    target: Path,
    size: int,
    *,
    lossless: bool,
    mask: bool,
    check: Callable[[Header], None],
) -> str:
    """Write the copy of a file; `shrunk` or `kept`."""
    if is_table(name) or name.lower().endswith((".txt", ".names", ".yaml", ".yml")):
        _keep(source, name, target)
        return "kept"
    with reading_image(name), source.open(name) as file, open_image(file) as image:
        if not mask:  # a photo without its mask could not be trained on
            check(header_of(image))
        width, height = oriented_size(image)
        shorter = min(width, height)
        small = None
        if shorter > size:
            columns, rows = (max(1, round(side * size / shorter)) for side in (width, height))
            if mask:
                small = _smaller_mask(image, columns, rows)
            else:
                whole = Box(0, 0, width, height)
                small = Image.fromarray(resized(image, whole, columns, rows))
        kind = "JPEG" if image.format in ("JPEG", "MPO") and not lossless and not mask else "PNG"
    if small is None:
        _keep(source, name, target)
        return "kept"
    with replacing(target) as part:
        small.save(part, kind, **({"quality": QUALITY, "subsampling": 0} if kind == "JPEG" else {}))
    return "shrunk"


def _smaller_mask(image: Image.Image, columns: int, rows: int) -> Image.Image:
    """A mask of fewer pixels, each of them one of the mask; its palette stays."""
    step = gray_step(image)
    with turn_for(MASK_BYTES * image.width * image.height):
        small = image.resize((columns, rows), Image.Resampling.NEAREST)
    return small if step == 1 else small.point(lambda value: value // step)


def _keep(source: Source, name: str, target: Path) -> None:
    with replacing(target) as part, part.open("wb") as copy:
        for chunk in _chunks(source, name):
            copy.write(chunk)


def _chunks(source: Source, name: str) -> Iterator[bytes]:
    """A file in pieces; a list in an archive may be of any size."""
    with reading_image(name), source.open(name) as file:
        while chunk := file.read(_CHUNK):
            yield chunk
