"""Damaged files of strangers give what they hold, or one sentence; never another exception.

Each reader gets 40 files here, and as many as
`POCKETUNE_FUZZ=100000 pytest tests/fuzz/test_damaged_files.py` says. A file that fails is printed
in its smallest form, and belongs in `HARD` once its fault is mended.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from pocketune.data import load_splits
from pocketune.data.labels.tables import read_table
from pocketune.device.train.checkpoint import Checkpoint, TrainedNetwork
from pocketune.device.use.delta import Delta
from pocketune.errors import PocketuneError
from pocketune.kit.graphs import check_graph
from pocketune.kit.kit import Kit
from pocketune.kit.manifest import Manifest
from pocketune.kit.names import BEST, LAST
from pocketune.tasks import TASKS

from ..device.runs import write_best, write_last
from ..device.tiny_kit import CLASSES, TinyKit

FEW = 40  # the same ones in every run
CASES = int(os.environ.get("POCKETUNE_FUZZ", FEW))
ODD = [None, True, -1, 0, 1, 1 << 40, 1 << 63, 1e308, -0.5, "", "x", "\ud800", "a/../b", "9" * 5000]
ODD += [[], {}, [1 << 40] * 3, [[[]]], {"name": "x"}]


@dataclass(frozen=True)
class Reader:
    """A kind of file: an example, how it is read, and what makes an edited one plausible."""

    example: Callable[[Path], bytes]
    read: Callable[[Path], object]
    mend: Callable[[bytes], bytes] = bytes
    file: str = "file"


def checkpoint(folder: Path) -> bytes:
    kit = TinyKit().write(folder / "run")
    write_last(folder / "run", kit, kit.state(), CLASSES, folder / "photos")
    return (folder / "run" / LAST).read_bytes()


def network(folder: Path) -> bytes:
    kit = TinyKit().write(folder / "run")
    write_best(folder / "run", kit, kit.state(), CLASSES)
    return (folder / "run" / BEST).read_bytes()


def delta(folder: Path) -> bytes:
    network(folder)
    Delta.of(folder / "run").save(folder / "delta")
    return (folder / "delta").read_bytes()


def with_checksum(content: bytes) -> bytes:
    """The checksum of what the file holds now, so that what lies behind it is tried too."""
    length = int.from_bytes(content[:8], "little")
    try:
        header = json.loads(content[8 : 8 + length])
        header["__metadata__"].pop("sha256", None)
        digest = hashlib.sha256(json.dumps(header).encode() + content[8 + length :])
        header["__metadata__"]["sha256"] = digest.hexdigest()
        text = json.dumps(header).encode()
    except (ValueError, KeyError, TypeError, AttributeError):
        return content
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


def kit_archive(folder: Path) -> bytes:
    return TinyKit().write(folder / "kit.zip").path.read_bytes()


def photos_archive(folder: Path) -> bytes:
    import zipfile

    with zipfile.ZipFile(folder / "photos.zip", "w") as archive:
        for number in range(6):
            image = folder / f"{number}.png"
            Image.new("RGB", (9, 9), (40 * number, 9, 9)).save(image)
            archive.write(image, f"{'ab'[number % 2]}/{number}.png")
        archive.writestr("labels.csv", "file,label\na/0.png,a\n")
    return (folder / "photos.zip").read_bytes()


def open_kit(path: Path) -> object:
    return Kit.open(path).state()


def graph(path: Path) -> None:
    data = memoryview(path.read_bytes())
    check_graph("step.onnx", data, TinyKit().manifest(), "the graph")


def table(name: str, content: bytes) -> Reader:
    return Reader(
        lambda _: content, lambda path: read_table(path.read_bytes(), name, [*TASKS.values()])
    )


def masks(file: str, content: str, others: Mapping[str, str] | None = None) -> Reader:
    """A file of annotations beside an image; every mask is drawn."""

    def example(folder: Path) -> bytes:
        for name, text in (others or {}).items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
        (folder / "images").mkdir(exist_ok=True)
        for image in ("a.png", "images/a.png"):
            Image.new("RGB", (24, 20)).save(folder / image)
        return content.encode()

    def read(path: Path) -> None:
        photos = load_splits(path.parents[file.count("/")], val_fraction=0).train
        for index in range(len(photos)):
            photos.label(index, 24, 20)

    return Reader(example, read, file=file)


SQUARE = [2, 2, 22, 2, 22, 18, 2, 18]
COCO = {
    "images": [{"id": 7, "file_name": "a.png", "width": 24, "height": 20}],
    "annotations": [
        {"id": 1, "image_id": 7, "category_id": 3, "segmentation": [SQUARE]},
        {
            "id": 2,
            "image_id": 7,
            "category_id": 3,
            "segmentation": {"counts": [5, 15] * 24, "size": [20, 24]},
        },
    ],
    "categories": [{"id": 3, "name": "cat"}],
}
SUN = {"label": "sun", "points": [[12, 10], [12, 15]], "shape_type": "circle"}
LABELME = {
    "shapes": [
        {"label": "cat", "points": [[2, 2], [22, 2], [22, 18]], "shape_type": "polygon"},
        SUN,
    ],
    "imagePath": "a.png",
    "imageData": "aGk=",
    "imageHeight": 20,
    "imageWidth": 24,
}

YOLO = "0 0.1 0.1 0.9 0.1 0.9 0.8\n1 0.2 0.2 0.4 0.2 0.4 0.4\n"
NAMES = "nc: 2\nnames: ['cat', 'dog']\n"

READERS = {
    "manifest": Reader(
        lambda _: TinyKit().manifest().to_json(), lambda path: Manifest.from_json(path.read_bytes())
    ),
    "graph": Reader(lambda _: TinyKit().files()["step.onnx"], graph),
    "kit": Reader(kit_archive, open_kit),
    "photos": Reader(photos_archive, load_splits),
    "table": table(
        "t.csv", b'file,label,split\na/1.jpg,cat,train\nb/2.jpg,dog,val\n"c,3.jpg",7,test\n'
    ),
    "tabs": table("t.tsv", b"file\tlabel\na/1.jpg\tcat\nb/2.jpg\tdog\n"),
    "lines": table(
        "metadata.jsonl", b'{"file_name": "a.jpg", "label": 3}\n{"label": "x", "file_name": "b"}\n'
    ),
    "celeba": table("list_attr_celeba.txt", b"2\nBald Young\na.jpg  1 -1\nb.jpg -1  1\n"),
    "coco": masks("annotations.json", json.dumps(COCO)),
    "labelme": masks("a.json", json.dumps(LABELME)),
    "yolo": masks("labels/a.txt", YOLO, {"data.yaml": NAMES}),
    "yolo names": masks("data.yaml", NAMES, {"labels/a.txt": YOLO}),
    "checkpoint": Reader(checkpoint, Checkpoint.load, with_checksum),
    "network": Reader(network, TrainedNetwork.load, with_checksum),
    "delta": Reader(delta, Delta.load, with_checksum),
}


@st.composite
def edited(draw: st.DrawFn, content: bytes) -> bytes:
    """The content with a few bytes replaced, removed or added; or one value of its JSON."""
    if draw(st.booleans()):
        changed = _other_value(draw, content)
        if changed is not None:
            return changed
    data = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(len(data) - 1, 0)))
        data[place : place + draw(st.integers(0, 8))] = draw(st.binary(max_size=16))
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


def _other_value(draw: st.DrawFn, content: bytes) -> bytes | None:
    """With an odd value in the JSON that the content is, or that its header is."""
    length = int.from_bytes(content[:8], "little")
    inside = content[8 : 8 + length] if length < len(content) else content
    try:
        data = json.loads(inside)
        holder, key = draw(st.sampled_from(list(_places(data))))
    except ValueError:
        return None
    if key == "pocketune" and draw(st.booleans()):  # JSON in a text
        within = json.loads(holder[key])
        spot, name = draw(st.sampled_from(list(_places(within))))
        spot[name] = draw(st.sampled_from(ODD))
        holder[key] = json.dumps(within)
    else:
        holder[key] = draw(st.sampled_from(ODD))
    text = json.dumps(data).encode("utf-8", "surrogatepass")
    if inside is content:
        return text
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


def _places(data: Any) -> Any:
    """Every list or object in a JSON value, with each of its keys."""
    keys = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in keys:
        yield data, key
        if isinstance(value, (dict, list)):
            yield from _places(value)


HARD = (
    ("manifest", b"[" * 100_000),  # deeper than Python's stack
    ("manifest", b'{"\\ud800": 1}'),  # no text in UTF-8
    ("manifest", b'{"' + b"x" * 100_000 + b'": 1}'),  # a message of many pages
    ("manifest", b'{"schema": ' + b"9" * 5000 + b"}"),  # more digits than Python converts
    ("graph", b"\x0a" * 1000),
    ("checkpoint", b"\xff" * 16),  # a header as long as all memory
    ("table", b"file,label\n\x1b[2J,\n"),  # moves the cursor
    ("table", b"file,label\n" + b"x" * 200_000 + b",cat\n"),  # more than a cell of a CSV holds
    ("table", b"file,label\r\ra.jpg,\0\n"),
    ("lines", b"[" * 100_000),
    ("lines", b'{"file_name": "a", "label": ' + b"9" * 5000 + b"}"),
    ("lines", b'{"file_name": "a", "label": "\\ud800"}'),
    ("celeba", b"\xb2\nBald\na.jpg 1\n"),  # a digit that is no decimal
    ("coco", b'{"images": ' + b"[" * 100_000),
    ("coco", b'{"images": [{"id": 1e999}], "annotations": [], "categories": []}'),
    ("labelme", b'{"shapes": [{"points": [[NaN, 1]], "label": "a", "shape_type": "circle"}]}'),
    ("labelme", json.dumps({**LABELME, "shapes": [{**SUN, "label": "\ud800"}]}).encode()),
    ("yolo", b"0 nan nan inf inf 1e30 1e30\n"),
    ("yolo names", b"names: [" + b"a, " * 10_000),
)
"""Readers, each with a file that is hard on it."""


@pytest.mark.parametrize(("name", "content"), HARD)
def test_hard_files(name: str, content: bytes, tmp_path: Path) -> None:
    reader = READERS[name]
    reader.example(tmp_path)
    path = tmp_path / reader.file
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(reader.mend(content))
    is_read_or_refused(reader, path)


def is_read_or_refused(reader: Reader, path: Path) -> None:
    try:
        reader.read(path)
    except PocketuneError as error:
        message = str(error)
        assert "\n" not in message
        assert len(message) < 2100
        message.encode()


@pytest.mark.timeout(CASES // FEW * 20)  # a hang is noticed, a long search is not one
@pytest.mark.parametrize("name", READERS)
def test_damage_is_one_sentence(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    reader = READERS[name]
    content = reader.example(folder)
    path = folder / f"{reader.file}{'.zip' if name in ('kit', 'photos') else ''}"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    reader.read(path)

    @settings(
        max_examples=CASES,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        derandomize=CASES == FEW,
    )
    @given(edited(content))
    def damage(changed: bytes) -> None:
        path.write_bytes(reader.mend(changed))
        is_read_or_refused(reader, path)

    damage()
