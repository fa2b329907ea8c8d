"""Real photos and weights, which the project does not contain, and generated photos.

Torch is only imported when it is needed, so that a script whose own memory counts may import this.
"""

from __future__ import annotations

import os
import zipfile
from argparse import ArgumentParser, Namespace
from collections import Counter
from pathlib import Path

import numpy as np
from PIL import Image

DEFAULT = Path(__file__).parents[2] / "shared" / "data"


def parse(parser: ArgumentParser) -> Namespace:
    """Arguments with `--data`; without such a folder the script ends, without an error."""
    default = Path(os.environ.get("POCKETUNE_SHARED_DATA", DEFAULT))
    parser.add_argument("--data", type=Path, default=default, help="folder of images and weights")
    options = parser.parse_args()
    if not options.data.is_dir():
        print(f"skipped: no images and weights at {options.data}; name their folder with --data")
        raise SystemExit(0)
    return options


def unpack(data: Path, name: str, folder: Path) -> Path:
    """A set of real photos as `train` and `test` folders of class folders."""
    if name == "cifar10":
        unpack_cifar10(data / "cifar10", folder)
    else:
        files = {"flowers": "oxford_flowers_12cls_224", "flower_photos": "flower_photos_5cls_160"}
        with zipfile.ZipFile(data / "classification" / f"{files[name]}.zip") as archive:
            archive.extractall(folder)
    return folder


def unpack_cifar10(data: Path, folder: Path, per_class: int | None = None) -> None:
    """CIFAR-10: 1,000 images to test, and the first 2,000 to train, or so many of each class."""
    from pyarrow import parquet

    for part, count in (("train", 2000), ("test", 1000)):
        rows = parquet.read_table(data / f"cifar10_{part}.parquet")
        if part == "test" or per_class is None:
            rows, limit = rows.slice(0, count), count
        else:
            limit = per_class
        seen: Counter[str] = Counter()
        for number, row in enumerate(rows.to_pylist()):
            seen[row["label_name"]] += 1
            if seen[row["label_name"]] <= limit:
                path = folder / part / row["label_name"] / f"{number:05d}.jpg"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(row["image"])


def class_names(count: int) -> list[str]:
    """Those of the generated photos."""
    return [f"{number:02d}" for number in range(count)]


def write_photos(
    folder: Path,
    classes: int,
    count: int,
    size: tuple[int, int] = (256, 256),
    grain: int = 1,
    *,
    masks: bool = False,
) -> Path:
    """Noise in grains of so many pixels, as JPEGs in class folders; `size` is (width, height).

    With masks, the photos are in one folder and the classes of their grains in another.
    """
    rng, names = np.random.default_rng(0), class_names(classes)
    for number in range(count):
        coarse = rng.integers(0, 256, (size[1] // grain, size[0] // grain, 3), dtype=np.uint8)
        path = folder / ("images" if masks else names[number % classes]) / f"{number}.jpg"
        if masks:
            mask = Image.fromarray(coarse[..., 0] % classes)
            (folder / "masks").mkdir(parents=True, exist_ok=True)
            mask.resize(size, Image.Resampling.NEAREST).save(folder / "masks" / f"{number}.png")
            (folder / "classes.txt").write_text("\n".join(names))
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(coarse).resize(size).save(path)
    return folder
