"""Hashes of photos and weights: they follow the content and not the place."""

import shutil
import sys
from pathlib import Path

import pytest

from pocketune.comparison.sources import content, photos_content
from pocketune.errors import PocketuneError


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for name in ("b/2.png", "a/1.png", "a/2.png"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "photos" / name).write_bytes(name.encode())
    return tmp_path / "photos"


def test_a_copy_is_the_same(photos: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(photos, tmp_path / "copy")
    assert photos_content(str(photos)) == photos_content(str(copy))


@pytest.mark.parametrize("change", ["edited", "longer", "renamed", "moved", "removed", "added"])
def test_a_change_is_seen(change: str, photos: Path) -> None:
    before = photos_content(str(photos))
    first = photos / "a" / "1.png"
    if change == "edited":
        first.write_bytes(b"a/9.png")
    elif change == "longer":
        first.write_bytes(b"another photo")
    elif change == "removed":
        first.unlink()
    elif change == "added":
        (photos / "a" / "3.png").write_bytes(b"")
    else:
        first.rename(photos / ("a/0.png" if change == "renamed" else "b/1.png"))
    assert photos_content(str(photos)) != before


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_a_change_behind_a_link_is_seen(photos: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    linked.mkdir()
    for name in ("a", "b"):
        (linked / name).symlink_to(photos / name)
    (linked / "b" / "loop").symlink_to(linked)
    before = photos_content(str(linked))
    (photos / "a" / "1.png").write_bytes(b"another photo")
    assert photos_content(str(linked)) != before


def test_tables_are_read_and_their_photos_counted(photos: Path) -> None:
    table, same = photos / "a.csv", photos / "b.csv"
    table.write_text("file,label\na/1.png,x\ngone.png,y\n")
    same.write_text("file,label\na/1.png,x\ngone.png,y\n")
    before = photos_content(str(table))
    assert before == photos_content(str(same))
    same.write_text("file,label\na/1.png,y\ngone.png,y\n")
    assert before != photos_content(str(same))
    (photos / "a" / "1.png").write_bytes(b"a/9.png")
    assert photos_content(str(table)) != before


def test_weights_that_are_no_file(tmp_path: Path) -> None:
    assert (content(None), content("imagenet")) == (None, "imagenet")
    with pytest.raises(PocketuneError, match=r"no file of weights at .*none\.pth: check the path"):
        content(str(tmp_path / "none.pth"))
