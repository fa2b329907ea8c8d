"""Decode an opened image upright, to 8-bit red, green and blue."""

from __future__ import annotations

import math

import numpy as np
from PIL import Image, ImageFile, TiffImagePlugin

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
