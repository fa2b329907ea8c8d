"""The images of the demo: handwritten digits.

Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak, UCI Machine Learning
Repository, 1998, https://doi.org/10.24432/C50P49, licensed under CC BY 4.0. They are the 1,797
images that scikit-learn distributes; only the file format differs.
"""

from __future__ import annotations

from pathlib import Path

from PIL import Image

SHEET = Path(__file__).with_name("digits.png")
SIDE = 8  # pixels of an image
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def unpack_digits(folder: Path) -> int:
    """Write every image of the sheet to `folder/<name of the digit>/<number>.png`.

    Returns:
        The number of images written, 1,797: grayscale, 8 x 8 pixels, white ink on black.

    Raises:
        OSError: The folder cannot be written.
    """
    with Image.open(SHEET) as sheet:
        counts = [int(count) for count in str(sheet.info["counts"]).split()]
        for row, (name, count) in enumerate(zip(NAMES, counts, strict=True)):
            (folder / name).mkdir(parents=True, exist_ok=True)
            for column in range(count):
                left, top = column * SIDE, row * SIDE
                image = sheet.crop((left, top, left + SIDE, top + SIDE))
                image.save(folder / name / f"{column:03}.png")
    return sum(counts)
