"""Pack scikit-learn's handwritten digits into the sheet that the demo unpacks.

    pip install scikit-learn && python tools/make_digits_sheet.py src/pocketune/demo/digits.png

1,797 images of 8 x 8 pixels and 17 gray levels: one row of cells for each digit, in their order
in the data set. Lossless: gray level g of 0 to 16 becomes round(g * 255 / 16).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image, PngImagePlugin
from sklearn.datasets import load_digits

NOTICE = (
    "Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak, UCI Machine Learning "
    "Repository, 1998, doi.org/10.24432/C50P49, CC BY 4.0. Unchanged but for the file format."
)


def main() -> None:
    """Write the sheet; the number of images in each row goes into the file's text."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    digits = load_digits()
    rows = [digits.images[digits.target == digit] for digit in range(10)]
    counts = [len(row) for row in rows]
    sheet = np.zeros((10 * 8, max(counts) * 8), np.uint8)
    for digit, row in enumerate(rows):
        pixels = np.rint(row * 255 / 16).astype(np.uint8)
        sheet[digit * 8 : digit * 8 + 8, : len(row) * 8] = np.concatenate(list(pixels), axis=1)
    text = PngImagePlugin.PngInfo()
    text.add_text("counts", " ".join(map(str, counts)))
    text.add_text("Copyright", NOTICE)
    Image.fromarray(sheet).save(parser.parse_args().out, optimize=True, pnginfo=text)


if __name__ == "__main__":
    main()
