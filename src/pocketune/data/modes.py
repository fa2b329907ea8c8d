"""Every kind of pixel that image files hold, to 8-bit red, green and blue."""

from __future__ import annotations

import numpy as np
from PIL import Image


def to_rgb(image: Image.Image) -> Image.Image:
    """The image in mode RGB; the image itself where it is so already.

    Transparent parts become white, the page that drawings and cut-out products are made for (black
    would swallow black lines). 16-bit gray keeps its upper 8 bits.
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
    """Gray with more than 8 bits; Pillow's own conversion would clip it at 255."""
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    values = np.nan_to_num(np.asarray(image, dtype=np.float32))
    scale = 1.0
    if values.max() > 255:
        scale = 1 / 256
    elif image.mode == "F" and values.max() <= 1:
        scale = 255.0
    return Image.fromarray((values * scale).clip(0, 255).astype(np.uint8))
