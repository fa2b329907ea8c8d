"""Decode an image file of any common format to 8-bit red, green and blue.

This module saves memory. A 12-megapixel JPEG takes 48 MB when it is decoded in full, but a JPEG can
also be decoded at a half, a quarter or an eighth of its size. The crop is therefore chosen from the
header, and the image is decoded only as large as the crop needs. What else is large is converted
and resized in strips (`strips.py`), and the rare image that takes much in any way waits for its
turn (`decoding.py`). An image above a limit is refused.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
from PIL import (
    Image,
    ImageFile,
    PngImagePlugin,
    TiffImagePlugin,
    UnidentifiedImageError,
    WebPImagePlugin,
)

from pocketune.data.avif import avif_planes
from pocketune.data.decoding import MAX_WORKING_BYTES, READ_WHOLE, check_size, pixel_bytes
from pocketune.data.headers import Header
from pocketune.data.heif import heif_planes
from pocketune.data.metadata import without_metadata
from pocketune.data.netpbm import use_own_decoder
from pocketune.data.segments import has_divided_scans, tag_bytes
from pocketune.errors import PocketuneError
from pocketune.files import shown

try:
    from PIL import AvifImagePlugin
except ImportError:  # Pillow before 11.2
    AvifImagePlugin = None  # type: ignore[assignment]
else:
    AvifImagePlugin.DEFAULT_MAX_THREADS = 2  # each takes memory; there may be one for each core

# A fixed list: without it, Pillow imports all of its plugins (megabytes) at the first file that is
# not an image, and some of them start other programs.
_PLUGINS = (WebPImagePlugin, TiffImagePlugin, AvifImagePlugin)  # importing registers them
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM") + (("AVIF",) * bool(AvifImagePlugin))

_SCAN, _MOST_SCANS = b"\xff\xda", 200  # cameras and browsers write about ten
_CHUNK = 1 << 16
_HEIF = b"heic", b"heix", b"hevc", b"mif1", b"msf1"
"""Brands of HEIF files, which follow `ftyp`."""

PNG_CHANNELS = {"L": 1, "P": 1, "LA": 2, "RGB": 3, "RGBA": 4}
_YCBCR, _CONVERTED_BITS = 6, 32  # the library converts it to red, green, blue and alpha
_TILE_BYTES = 325  # the tag of their numbers
T = TypeVar("T")
EXIF_ORIENTATION = 0x0112
UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class UnreadableImage(PocketuneError):  # noqa: N818 - the name describes the file
    """A file that cannot be used as an image.

    Attributes:
        name: The file.
        reason: Why, in a few words.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{shown(name)} cannot be used as an image: {reason}")
        self.name = name
        self.reason = reason


def open_image(file: IO[bytes]) -> Image.Image:
    """Read an image's header; no pixel is decoded yet.

    Args:
        file: A seekable binary file, which has to stay open until the image is decoded.

    Raises:
        OSError, ValueError and others: The file is not an image or is too large; see
            `reading_image`.
    """
    _refuse_endless(file)
    file = without_metadata(file)
    image: Image.Image
    try:
        image = Image.open(file, formats=FORMATS)
    except UnidentifiedImageError:
        image = _open_heif(file)
    header = header_of(image)
    check_size(header)
    if header.coefficients:
        _refuse_many_scans(file)
    if image.format == "PPM":
        use_own_decoder(image)
    if isinstance(image, PngImagePlugin.PngImageFile):
        image.load_end = _nothing  # type: ignore[method-assign]  # it reads what follows the pixels
    return image


def _nothing() -> None:
    """No metadata is read."""


def _open_heif(file: IO[bytes]) -> Image.Image:
    """An image in the format of iPhones, if the package is installed that reads it.

    The package is imported when there is such a photo: it takes memory.
    """
    file.seek(0)
    head = file.read(16)
    if head[4:8] != b"ftyp" or head[8:12] not in _HEIF:
        raise ValueError("not an image in a known format" if head else "the file is empty")
    try:
        from pillow_heif import HeifImagePlugin  # noqa: F401 - importing registers it
    except ImportError:
        raise ValueError(
            'reading HEIC photos needs pillow-heif: pip install "pocketune[heif]", or export it as '
            "JPEG"
        ) from None
    file.seek(0)
    return Image.open(file, formats=("HEIF",))


def _refuse_endless(file: IO[bytes]) -> None:
    """Refuse a file of which Pillow reads too much when it opens it."""
    head, size, what = file.read(18), 0, "its file"
    if head.startswith(b"RIFF") or head[4:8] == b"ftyp":
        size = file.seek(0, os.SEEK_END)
    elif head.startswith((b"II", b"MM")):
        size, what = tag_bytes(file), "the metadata"
    elif head.startswith(b"BM"):
        size, what = int.from_bytes(head[14:], "little"), "the header"
    file.seek(0)
    if size > MAX_WORKING_BYTES:
        raise ValueError(
            f"{what} of {size >> 20} MB is larger than the {MAX_WORKING_BYTES >> 20} MB allowed; "
            "make it smaller"
        )


def _refuse_many_scans(file: IO[bytes]) -> None:
    """Refuse a JPEG of scans that would be decoded for minutes: each scan passes over it all."""
    position, scans, before = file.tell(), 0, b""
    file.seek(0)
    while chunk := file.read(_CHUNK):
        scans += (before + chunk).count(_SCAN)
        before = chunk[-1:]
    file.seek(position)
    if scans > _MOST_SCANS:
        raise ValueError(f"it has {scans:,} scans; save it as an ordinary JPEG")


def load_image(data: bytes | str | Path) -> Image.Image:
    """Decode a whole image, upright, in mode RGB.

    Args:
        data: The bytes of an image file, or its path.

    Raises:
        UnreadableImage: The file is missing, damaged, too large or not an image.
    """
    name = "the image" if isinstance(data, bytes) else os.fspath(data)
    with reading_image(name), _binary(data) as file:
        return decode(open_image(file))


def decode(image: Image.Image, scale: float = 1.0) -> Image.Image:
    """Decode an image upright in mode RGB; of an animation, the first frame.

    Args:
        image: From `open_image`, or any Pillow image.
        scale: The caller will shrink the image by up to this factor. A JPEG is then decoded smaller
            by a power of two, if that leaves enough pixels.
    """
    turn = orientation(image)  # decoding may discard it
    draft(image, scale)
    image.load()
    return upright(to_rgb(image), turn)


def draft(image: Image.Image, scale: float) -> None:
    """Have a JPEG that is not decoded yet decoded smaller; see `decode`."""
    if scale < 1:
        image.draft(None, (math.ceil(image.width * scale), math.ceil(image.height * scale)))


def release(image: Image.Image) -> None:
    """Free the pixels of an image from a file, which it would hold for as long as it is there."""
    if isinstance(image, ImageFile.ImageFile):
        image.close()
        for decoder in ("_decoder", "_heif_file"):  # with copies of the pixels
            image.__dict__.pop(decoder, None)


def orientation(image: Image.Image) -> int:
    """The EXIF orientation, 1 to 8; 1 if it is missing or damaged."""
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        return 1  # Pillow rotates these by itself
    try:
        # Not image.getexif(), which decodes all pixels of a PNG to find metadata behind them.
        value = Image.Image.getexif(image).get(EXIF_ORIENTATION, 1)
    except Exception:  # an image with damaged metadata can still be used
        return 1
    return value if value in UPRIGHT else 1


def oriented_size(image: Image.Image) -> tuple[int, int]:
    """Width and height of the upright image, before or after it is decoded."""
    width, height = image.size
    return (height, width) if orientation(image) >= 5 else (width, height)


def upright(image: Image.Image, orientation: int) -> Image.Image:
    """The image rotated or mirrored to be upright; the image itself if it is upright already."""
    if orientation not in UPRIGHT:
        return image
    turned = image.transpose(UPRIGHT[orientation])
    turned.info.clear()  # otherwise the orientation would be applied again
    return turned


def to_rgb(image: Image.Image) -> Image.Image:
    """The image in mode RGB; the image itself if it is in that mode already.

    Transparent parts become white, the background that drawings and product photos are made for
    (black would hide black lines). 16-bit gray keeps its upper 8 bits.
    """
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return _deep_gray(image).convert("RGB")
    if not image.has_transparency_data:
        return image.convert("RGB")
    rgba = image.convert("RGBA")
    page = Image.new("RGB", rgba.size, "white")
    page.paste(rgba, mask=rgba.getchannel("A"))
    return page


def _binary(data: bytes | str | Path) -> IO[bytes]:
    return io.BytesIO(data) if isinstance(data, bytes) else Path(data).open("rb")


def header_of(image: Image.Image) -> Header:
    """What decoding an image takes depends on this; see `Header`."""
    if image.format in ("JPEG", "MPO"):
        return Header("JPEG", image.mode, *image.size, _coefficients(image))
    kind = image.format or ""
    planes = 0.0
    if kind == "AVIF":
        planes = avif_planes(_content(image), image.size, alpha="A" in image.mode)
    elif kind == "HEIF":
        planes = heif_planes(_content(image))
    return Header(
        kind,
        image.mode,
        *image.size,
        streamed=is_streamed(image),
        file_bytes=_file_bytes(image),
        planes=planes,
        metadata=_metadata_bytes(image),
    )


def _coefficients(image: Image.Image) -> float:
    """The coefficients for each pixel that a JPEG keeps until its last scan, if it has several."""
    file: IO[bytes] | None = getattr(image, "fp", None)
    if not image.info.get("progressive") and not (file and _at_rest(file, has_divided_scans)):
        return 0.0
    areas: list[int] = [across * down for _, across, down, *_ in getattr(image, "layer", ())]
    return sum(areas) / max(areas)


def _at_rest(file: IO[bytes], read: Callable[[IO[bytes]], T]) -> T:
    """What is read of a file, whose position stays."""
    position = file.tell()
    try:
        return read(file)
    finally:
        file.seek(position)


def _file_bytes(image: Image.Image) -> int:
    """Size of the file of an image that is not decoded yet, of a format that is read as a whole."""
    file: IO[bytes] | None = getattr(image, "fp", None)
    if image.format not in READ_WHOLE or file is None:
        return 0
    size = _at_rest(file, lambda opened: opened.seek(0, os.SEEK_END))
    if not isinstance(image, TiffImagePlugin.TiffImageFile):
        return size
    if image.info.get("compression") == "raw":
        size = 0
    else:
        size = min(size, _read_bytes(image, file) or size) + _strip_bytes(image)
    is_turned = image.tag_v2.get(EXIF_ORIENTATION, 1) in UPRIGHT  # by Pillow, as a whole
    return max(size, is_turned * image.width * image.height * pixel_bytes(image.mode))


def _metadata_bytes(image: Image.Image) -> int:
    """Bytes beside the pixels that an image of such a format holds until its file is closed."""
    file: IO[bytes] | None = getattr(image, "fp", None)
    if image.format not in READ_WHOLE or file is None:
        return 0
    if image.format == "TIFF":
        return _at_rest(file, tag_bytes)
    return sum(len(value) for value in image.info.values() if isinstance(value, bytes))


def _read_bytes(image: TiffImagePlugin.TiffImageFile, file: IO[bytes]) -> int:
    """Bytes of the strips or tiles of a TIFF's first page; 0 if more of its file is read.

    They are read from a file of the system. One in an archive is in memory with all of its pages.
    """
    try:
        file.fileno()
    except (AttributeError, OSError):
        return 0
    if image.info.get("compression") == "tiff_jpeg":  # its tables are elsewhere
        return 0
    tags = image.tag_v2
    counts = tags.get(TiffImagePlugin.STRIPBYTECOUNTS) or tags.get(_TILE_BYTES)
    return sum(counts) if isinstance(counts, tuple) else 0


def _strip_bytes(image: TiffImagePlugin.TiffImageFile) -> int:
    """Bytes of a strip or tile of a compressed TIFF, which is decompressed before it is copied."""
    tags = image.tag_v2
    width = tags.get(TiffImagePlugin.TILEWIDTH, image.width)
    rows = tags.get(TiffImagePlugin.TILELENGTH, tags.get(TiffImagePlugin.ROWSPERSTRIP))
    bits = sum(tags.get(TiffImagePlugin.BITSPERSAMPLE, (8,)))
    converted = tags.get(TiffImagePlugin.PHOTOMETRIC_INTERPRETATION) == _YCBCR
    if converted and image.info.get("compression") != "jpeg":
        bits += _CONVERTED_BITS
    return int(width * min(rows or image.height, image.height) * bits) // 8


def _content(image: Image.Image) -> bytes:
    """The file of an image; nothing if it is decoded."""
    file: IO[bytes] | None = getattr(image, "fp", None)
    return b"" if file is None else _at_rest(file, _whole)


def _whole(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


def is_streamed(image: Image.Image) -> bool:
    """Whether an image that is not decoded yet is a PNG whose rows can be decoded one by one."""
    tiles: list[tuple[Any, ...]] = getattr(image, "tile", [])
    return bool(
        image.format == "PNG"
        and len(tiles) == 1
        and tiles[0][3] == image.mode  # a byte for each channel
        and image.mode in PNG_CHANNELS
        and not image.info.get("interlace")
        and not getattr(image, "is_animated", False)
        and orientation(image) < 5
    )


def _deep_gray(image: Image.Image) -> Image.Image:
    """An image of more than 8 bits in 8-bit gray; Pillow's own conversion would clip it at 255."""
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    values = np.nan_to_num(np.asarray(image, dtype=np.float32))
    scale = 1.0
    if values.max() > 255:
        scale = 1 / 256
    elif image.mode == "F" and values.max() <= 1:
        scale = 255.0
    return Image.fromarray((values * scale).clip(0, 255).astype(np.uint8))


@contextmanager
def reading_image(name: str) -> Iterator[None]:
    """Turn any error while the file `name` is read and decoded into `UnreadableImage`."""
    try:
        yield
    except (PocketuneError, MemoryError):
        raise
    except Exception as error:  # a damaged file makes Pillow's decoders raise nearly anything
        raise UnreadableImage(name, _reason(error)) from error


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, PermissionError):
        return "no permission to read it"
    if isinstance(error, Image.DecompressionBombError):
        limit = 2 * (Image.MAX_IMAGE_PIXELS or 0) // 1_000_000
        return f"more than {limit} million pixels; make it smaller"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if str(error).startswith("decoder error"):  # an error number of libtiff
        return "the file is damaged"
    return str(error) or type(error).__name__
