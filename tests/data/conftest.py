"""Small images and folders of them, made for one test."""

import io
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


def encoded(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def noise(seed: int, width: int = 24, height: int = 20) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


@pytest.fixture(name="encoded")
def encoded_fixture() -> Callable[..., bytes]:
    """``encoded(image, kind, **options)``: the bytes of an image file."""
    return encoded


@pytest.fixture(name="noise")
def noise_fixture() -> Callable[..., Image.Image]:
    """``noise(seed, width, height)``: a random RGB image, its own for every seed."""
    return noise


@pytest.fixture
def tree(tmp_path: Path) -> Callable[[Mapping[str, bytes | int | str]], Path]:
    """Write files below a new folder: bytes and text as they are, a number as noise of its seed."""

    def write(files: Mapping[str, bytes | int | str], root: str = "photos") -> Path:
        for name, content in files.items():
            path = tmp_path / root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, int):
                content = encoded(noise(content))
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return tmp_path / root

    return write


@pytest.fixture
def photos(tree) -> Callable[..., Path]:
    """``photos(cats=5, dogs=7)``: class folders with so many images."""

    def write(**counts: int) -> Path:
        names = [f"{label}/{i:02}.png" for label, count in counts.items() for i in range(count)]
        return tree({name: seed for seed, name in enumerate(names)})

    return write


@pytest.fixture
def pack(tmp_path: Path) -> Callable[..., Path]:
    """``pack(folder, prefix)``: a .zip of a folder's files."""

    def write(folder: Path, prefix: str = "", method: int = zipfile.ZIP_DEFLATED) -> Path:
        path = tmp_path / "photos.zip"
        with zipfile.ZipFile(path, "w", method) as archive:
            for file in sorted(folder.rglob("*")):
                if file.is_file():
                    archive.write(file, prefix + file.relative_to(folder).as_posix())
        return path

    return write
