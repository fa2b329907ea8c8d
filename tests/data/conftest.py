"""Small images and folders of them, made for one test."""

import io
import struct
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


def divided_jpeg(width: int, height: int, sampling: int = 0x22, frame: int = 0xC0) -> bytes:
    """A gray baseline JPEG with one scan for each component (ITU T.81, section B.2.3)."""
    tables = b"\0" + bytes([8] * 64)
    parts = [b"\xff\xd8", segment(0xDB, tables)]
    components = bytes([1, sampling, 0, 2, 0x11, 0, 3, 0x11, 0])
    parts.append(segment(frame, struct.pack(">BHHB", 8, height, width, 3) + components))
    parts.append(segment(0xC4, bytes([0, 0, 1, *[0] * 14, 0])))  # the code 00 is a difference of 0
    parts.append(segment(0xC4, bytes([16, 0, 1, *[0] * 14, 0])))  # and the end of a block
    for component in (1, 2, 3):
        side = 8 if component == 1 or sampling == 0x11 else 16
        blocks = -(-width // side) * -(-height // side)
        parts += [segment(0xDA, bytes([1, component, 0, 0, 63, 0])), bytes(-(-blocks // 2))]
    return b"".join([*parts, b"\xff\xd9"])


def segment(marker: int, content: bytes) -> bytes:
    """A segment of a JPEG."""
    return b"\xff" + bytes([marker]) + struct.pack(">H", len(content) + 2) + content


@pytest.fixture(name="encoded")
def encoded_fixture() -> Callable[..., bytes]:
    """`encoded(image, kind, **options)`: the bytes of an image file."""
    return encoded


@pytest.fixture(name="noise")
def noise_fixture() -> Callable[..., Image.Image]:
    """`noise(seed, width, height)`: a random RGB image, its own for every seed."""
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
    """`photos(cats=5, dogs=7)`: class folders with so many images."""

    def write(**counts: int) -> Path:
        names = [f"{label}/{i:02}.png" for label, count in counts.items() for i in range(count)]
        return tree({name: seed for seed, name in enumerate(names)})

    return write


@pytest.fixture
def pack(tmp_path: Path) -> Callable[..., Path]:
    """`pack(folder, prefix)`: a .zip of a folder's files."""

    def write(folder: Path, prefix: str = "", method: int = zipfile.ZIP_DEFLATED) -> Path:
        path = tmp_path / "photos.zip"
        with zipfile.ZipFile(path, "w", method) as archive:
            for file in sorted(folder.rglob("*")):
                if file.is_file():
                    archive.write(file, prefix + file.relative_to(folder).as_posix())
        return path

    return write
