"""A stamp differs once a photo has changed, however carefully its time is restored."""

import os
import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from pocketune.data import load_splits, open_images, unlabeled
from pocketune.data.dataset import ImageDataset
from pocketune.data.sources import FolderSource


def changed(path: Path) -> None:
    """Change a byte and restore the time of the last change."""
    before, content = path.stat(), bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    if path.stat().st_ctime_ns == before.st_ctime_ns:  # a clock of whole ticks
        pytest.skip("the file system's clock is too coarse for two changes at once")


def stamps(dataset: ImageDataset) -> list[bytes | None]:
    return [dataset.stamp(index, name) for index, name in enumerate(dataset.names)]


def test_of_files(photos) -> None:
    dataset = load_splits(photos(cats=2, dogs=2), val_fraction=0).train
    before = stamps(dataset)
    assert len({*before}) == 4 and before == stamps(dataset)
    changed(dataset.root / dataset.names[1])
    (dataset.root / dataset.names[3]).unlink()
    assert [one == other for one, other in zip(before, stamps(dataset), strict=True)] == [
        True,
        False,
        True,
        False,
    ]
    assert stamps(dataset)[3] is None


def test_of_members(photos, tmp_path: Path) -> None:
    folder = photos(cats=2, dogs=2)
    first = Path(shutil.make_archive(str(tmp_path / "first"), "zip", folder))
    with zipfile.ZipFile(first) as archive, zipfile.ZipFile(tmp_path / "b.zip", "w") as other:
        for number, name in enumerate(n for n in archive.namelist() if not n.endswith("/")):
            content = bytearray(archive.read(name))
            content[-1] ^= number == 1
            other.writestr(name, bytes(content))
    one, other = (
        stamps(load_splits(path, val_fraction=0).train) for path in (first, tmp_path / "b.zip")
    )
    assert sum(a == b for a, b in zip(one, other, strict=True)) == 3


def test_of_an_archive_in_a_path(photos, tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "cats"), "zip", photos(cats=2, dogs=2))
    dataset = unlabeled(open_images([archive]))
    assert len({*stamps(dataset)}) == 4 and None not in stamps(dataset)


@pytest.mark.parametrize(
    ("encoding", "reason"),
    [("utf-8", "its name is not valid UTF-8; rename it"), ("ascii", "that ascii, of the locale,")],
)
def test_a_name_that_is_no_text_is_told_with_its_cause(tmp_path, monkeypatch, encoding, reason):
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: encoding)
    with pytest.raises(OSError, match=reason), FolderSource(tmp_path).open("\udcc3\udcbc.jpg"):
        pass


@pytest.mark.parametrize(
    "file", ["runs/p.plan/plan.json", "compare/compare.json", "runs/old/metrics.jsonl"]
)
def test_what_pocketune_wrote_beside_photos_is_not_of_them(photos, pack, file: str) -> None:
    folder = photos(cats=2, dogs=2)
    (folder / file).parent.mkdir(parents=True)
    (folder / file).write_text("{}")
    (folder / file).with_name("cells.txt").write_text("")
    for place in (folder, pack(folder)):
        assert load_splits(place, val_fraction=0).classes == ("cats", "dogs")
