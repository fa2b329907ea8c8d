"""Train a network on drawn street scenes and show what it sees before and after.

    python tools/make_segmentation_picture.py --weights mbv2-w0.35.safetensors OUT.png

The scenes are drawn from a seed: photos and masks of seven classes. `pocketune train` trains
DeepLabV3 over MobileNetV2 0.35 on 120 of them. The picture shows three others as photo and mask,
and as `pocketune predict` sees them before training and after it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from pocketune.device.use.pictures import palette

CLASSES = ("sky", "building", "tree", "pavement", "car", "person", "road")
WIDTH, HEIGHT = 192, 144
PARTS = {"train": 120, "val": 16, "test": 3}
NETWORK = ["deeplabv3", "--backbone", "mobilenet_v2", "--width", "0.35", "--head-channels", "32"]
METHOD = ["--method", "full", "--size", "144"]
RUN = ["--class-weights", "balanced", "--lr", "0.003"]
WINDOW = ["--window", "slide"]
GAP, TITLE = 4, 14

Box = tuple[float, float, float, float]


class Scene:
    """A photo and its mask, drawn shape by shape."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.photo = Image.new("RGB", (WIDTH, HEIGHT))
        self.mask = Image.new("L", (WIDTH, HEIGHT))
        self._draw = ImageDraw.Draw(self.photo)
        self._mark = ImageDraw.Draw(self.mask)

    def between(self, low: float, high: float) -> int:
        """A whole number, the upper end excluded."""
        return int(self.rng.integers(int(low), int(high)))

    def color(self, *around: int) -> tuple[int, ...]:
        """A color near this one."""
        return tuple(np.clip(self.rng.normal(around, 14), 0, 255).astype(int).tolist())

    def fill(self, name: str, box: Box, color: tuple[int, ...], shape: str = "rectangle") -> None:
        """Draw a shape into the photo, and its class into the mask."""
        getattr(self._draw, shape)(box, fill=color)
        getattr(self._mark, shape)(box, fill=CLASSES.index(name))

    def draw(self) -> None:
        """Draw the street from back to front."""
        ground = self.between(70, 88)
        curb = ground + self.between(10, 18)
        self.fill("sky", (0, 0, WIDTH, HEIGHT), self.color(150, 185, 225))
        left = 0
        while left < WIDTH:
            width = self.between(40, 80)
            if self.rng.random() < 0.85:
                self.building(left, width, ground)
            left += width
        self.fill("pavement", (0, ground, WIDTH, curb), self.color(170, 160, 150))
        self.fill("road", (0, curb, WIDTH, HEIGHT), self.color(85, 85, 92))
        for x in range(self.between(-20, 0), WIDTH, 36):
            middle = (curb + HEIGHT) // 2
            self.fill("road", (x, middle, x + 16, middle + 2), self.color(215, 215, 210))
        for _ in range(self.between(1, 4)):
            self.tree(self.between(0, WIDTH), ground + self.between(0, 6))
        for _ in range(self.between(1, 3)):
            self.person(self.between(0, WIDTH), curb + self.between(-6, 2))
        for depth in sorted(self.rng.integers(curb + 8, HEIGHT - 2, self.between(1, 3)).tolist()):
            self.car(self.between(-30, WIDTH - 30), depth)

    def building(self, left: int, width: int, ground: int) -> None:
        """Draw a house with its windows."""
        top = self.between(6, ground - 22)
        self.fill("building", (left, top, left + width - 1, ground), self.color(165, 110, 85))
        glass = self.color(95, 105, 120)
        for y in range(top + 6, ground - 10, 17):
            for x in range(left + 4, left + width - 9, 14):
                self.fill("building", (x, y, x + 7, y + 9), glass)

    def tree(self, x: int, foot: int) -> None:
        """Draw a trunk, and leaves that hide its top."""
        top, radius = foot - self.between(30, 56), self.between(12, 20)
        self.fill("tree", (x - 3, top, x + 3, foot), self.color(85, 60, 40))
        for _ in range(6):
            u, v = x + self.between(-9, 10), top + self.between(-6, 9)
            box = (u - radius, v - radius, u + radius, v + radius)
            self.fill("tree", box, self.color(60, 115, 50), "ellipse")

    def person(self, x: int, foot: int) -> None:
        """Draw legs, body and head."""
        tall = self.between(42, 54)
        neck = foot - tall * 3 // 4
        self.fill("person", (x - 6, foot - tall // 2, x + 6, foot), self.color(45, 50, 80))
        self.fill("person", (x - 8, neck, x + 8, foot - tall // 2), self.color(190, 60, 70))
        self.fill("person", (x - 6, neck - 12, x + 6, neck), self.color(215, 170, 140), "ellipse")

    def car(self, left: int, foot: int) -> None:
        """Draw a car from its side, the larger the nearer."""
        length = 44 + (foot - 80) * 2 // 3
        height = length // 4
        paint, dark = self.color(*self.rng.integers(30, 230, 3)), self.color(30, 32, 36)
        roof = (left + length // 5, foot - 2 * height, left + length * 4 // 5, foot - height)
        self.fill("car", roof, paint)
        window = (roof[0] + 3, roof[1] + 2, roof[2] - 3, roof[3])
        self.fill("car", window, self.color(150, 175, 190))
        self.fill("car", (left, foot - height, left + length, foot - 2), paint)
        for x in (left + length // 5, left + length * 4 // 5):
            wheel = (x - height / 3, foot - height * 2 / 3, x + height / 3, foot)
            self.fill("car", wheel, dark, "ellipse")

    def save(self, folder: Path, name: str) -> None:
        """Write the photo, in some light and with the grain of a camera, and the mask."""
        light = self.rng.normal(1, 0.12) * np.asarray(self.photo, np.float64)
        grain = self.rng.normal(0, 7, light.shape)
        photo = Image.fromarray(np.clip(light + grain, 0, 255).astype(np.uint8))
        self.mask.putpalette(palette().tobytes())
        for image, kind in ((photo, "images"), (self.mask, "masks")):
            (folder / kind).mkdir(parents=True, exist_ok=True)
            image.save(folder / kind / f"{name}.png")


def draw_scenes(folder: Path, parts: dict[str, int], seed: int = 0) -> None:
    """Draw photos and masks in the layout that `pocketune train` reads, so many of each part."""
    rng = np.random.default_rng(seed)
    for part, count in parts.items():
        for number in range(count):
            scene = Scene(rng)
            scene.draw()
            scene.save(folder / part, f"{number:03d}")
    (folder / "classes.txt").write_text("\n".join(CLASSES))


def show(columns: dict[str, list[Path]]) -> Image.Image:
    """Images in titled columns, above the colors of the classes."""
    rows = len(next(iter(columns.values())))
    wide, high = WIDTH + GAP, HEIGHT + GAP
    sheet = Image.new("RGB", (len(columns) * wide - GAP, TITLE + rows * high + TITLE), "white")
    draw = ImageDraw.Draw(sheet)
    for column, (title, paths) in enumerate(columns.items()):
        draw.text((column * wide + 2, 1), title, fill="black")
        for row, path in enumerate(paths):
            with Image.open(path) as image:
                sheet.paste(image.convert("RGB"), (column * wide, TITLE + row * high))
    for number, (name, color) in enumerate(zip(CLASSES, palette().tolist(), strict=False)):
        x, y = 2 + number * sheet.width // len(CLASSES), sheet.height - TITLE
        draw.rectangle((x, y + 2, x + 10, y + 11), fill=tuple(color))
        draw.text((x + 15, y + 1), name, fill="black")
    return sheet


def pocketune(*arguments: object) -> None:
    """Run the command."""
    subprocess.run([sys.executable, "-m", "pocketune", *map(str, arguments)], check=True)


def main() -> None:
    """Draw the scenes, train and predict by the command line, and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        streets, kit, test = folder / "streets", folder / "kit", folder / "streets" / "test"
        draw_scenes(streets, PARTS)
        of = ["--weights", options.weights, "--photos", streets, "--out", kit]
        pocketune("kit", "build", *NETWORK, *METHOD, *of)
        for run, epochs in (("before", 0), ("after", options.epochs)):
            out = folder / run
            pocketune("train", streets, "--kit", kit, *RUN, "--epochs", epochs, "--out", out)
            pocketune("evaluate", out, "--test", *WINDOW)
            pocketune("predict", out, test / "images", "--out", folder / f"{run}-seen", *WINDOW)
        names = [f"{number:03d}.png" for number in range(PARTS["test"])]
        folders = {
            "photo": test / "images",
            "truth": test / "masks",
            "before training": folder / "before-seen" / "masks",
            "after training": folder / "after-seen" / "masks",
        }
        sheet = show({title: [each / n for n in names] for title, each in folders.items()})
        sheet.quantize(128).save(options.out, optimize=True)


if __name__ == "__main__":
    main()
