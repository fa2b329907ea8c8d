"""Decode an image file of any common format to 8-bit red, green and blue.

This module saves memory. A 12-megapixel JPEG takes 48 MB when it is decoded in full, but a JPEG can
also be decoded at a half, a quarter or an eighth of its size. The crop is therefore chosen from the
header, and the image is decoded only as large as the crop needs. The rare large image that cannot
be decoded at a smaller size waits for its turn, so that two of them are never in memory at once. An
image above a limit is refused.
"""

from __future__ import annotations

import io
import math
import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO

import numpy as np
from PIL import Image, TiffImagePlugin, UnidentifiedImageError, WebPImagePlugin

from pocketune.data.headers import Header
from pocketune.errors import PocketuneError
from pocketune.files import shown

try:
    from PIL import AvifImagePlugin
except ImportError:  # Pillow before 11.2
    AvifImagePlugin = None  # type: ignore[assignment]

# A fixed list: without it, Pillow imports all of its plugins (megabytes) at the first file that is
# not an image, and some of them start other programs.
_PLUGINS = (WebPImagePlugin, TiffImagePlugin, AvifImagePlugin)  # importing registers them
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM") + (("AVIF",) * bool(AvifImagePlugin))

MAX_WORKING_BYTES = 128 << 20  # an image that takes more than this to decode is refused
HEAVY_BYTES = 16 << 20  # above this, one image at a time
_heavy = threading.Lock()

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
            ``reading_image``.
    """
    try:
        image = Image.open(file, formats=FORMATS)
    except UnidentifiedImageError:
        raise ValueError(_unknown_format(file)) from None
    needed = working_bytes(header_of(image))
    if needed > MAX_WORKING_BYTES:
        raise ValueError(
            f"its {image.width} x {image.height} pixels take {needed >> 20} MB to decode, more "
            f"than the {MAX_WORKING_BYTES >> 20} MB allowed; make it smaller"
        )
    return image


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
        image: From ``open_image``, or any Pillow image.
        scale: The caller will shrink the image by up to this factor. A JPEG is then decoded smaller
            by a power of two, if that leaves enough pixels.
    """
    turn = orientation(image)  # decoding may discard it
    if scale < 1:
        image.draft(None, (math.ceil(image.width * scale), math.ceil(image.height * scale)))
    image.load()
    return upright(to_rgb(image), turn)


def turn_for(image: Image.Image) -> AbstractContextManager[object]:
    """A context to hold while an image's pixels are in memory; only one heavy image may have it."""
    return _heavy if working_bytes(header_of(image)) > HEAVY_BYTES else nullcontext()


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
    """What decoding an image takes depends on this; see :class:`Header`."""
    coefficients = 0.0
    if image.info.get("progressive"):
        areas = [across * down for _, across, down, *_ in getattr(image, "layer", ())]
        coefficients = sum(areas) / max(areas)
    if image.format in ("JPEG", "MPO"):
        return Header("JPEG", image.mode, *image.size, coefficients)
    plain = not (image.info.get("interlace") or getattr(image, "is_animated", False))
    return Header(image.format or "", image.mode, *image.size, plain=plain)


def working_bytes(header: Header) -> int:
    """Peak memory of decoding in bytes, from the header.

    Pillow stores RGB in four bytes per pixel. While another mode is converted, its own pixels take
    memory as well. A large JPEG is decoded at a quarter of its size or less, but a progressive one
    keeps two bytes for every coefficient at full size until its last scan.
    """
    pixels = header.width * header.height
    if header.format != "JPEG":
        return pixels * (4 if header.mode == "RGB" else 8)
    return pixels * 4 // 16 + int(2 * pixels * header.coefficients)


def _unknown_format(file: IO[bytes]) -> str:
    file.seek(0)
    head = file.read(16)
    if not head:
        return "the file is empty"
    if head[4:8] == b"ftyp" and head[8:12] in (b"heic", b"heix", b"mif1", b"msf1"):
        return "HEIC photos are not supported; export it as JPEG"
    return "not an image in a known format"


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
    """Turn any error while the file ``name`` is read and decoded into ``UnreadableImage``."""
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
