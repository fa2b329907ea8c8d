"""Which way is up: the orientation that cameras note in a photo."""

from __future__ import annotations

from PIL import Image, TiffImagePlugin

TAG = 0x0112  # EXIF's Orientation
UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def orientation(image: Image.Image) -> int:
    """The EXIF orientation, 1 to 8; 1 where there is none or it is damaged."""
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        return 1  # Pillow turns these by itself
    try:
        # Not image.getexif(), which for a PNG decodes all pixels to find a note behind them.
        value = Image.Image.getexif(image).get(TAG, 1)
    except Exception:  # a damaged note about an image is no reason to refuse the image
        return 1
    return value if value in UPRIGHT else 1


def oriented_size(image: Image.Image) -> tuple[int, int]:
    """Width and height as a viewer shows the image, before or after it is decoded."""
    width, height = image.size
    return (height, width) if orientation(image) >= 5 else (width, height)


def upright(image: Image.Image, orientation: int) -> Image.Image:
    """The image turned as its orientation tells; the image itself where it stands upright."""
    if orientation not in UPRIGHT:
        return image
    turned = image.transpose(UPRIGHT[orientation])
    turned.info.clear()  # an orientation that was kept would be applied again
    return turned
