"""Pictures of predicted masks, each under a name of its own."""

from pathlib import Path

import pytest

from pocketune.device.use.pictures import _files


@pytest.mark.parametrize(
    ("names", "files"),
    [
        (["p/a.jpg", "p/b.png"], ["a", "b"]),
        (["p/a.jpg", "p/a.png"], ["a", "a.png"]),
        (["p/a.png.jpg", "p/a.jpg", "p/a.png"], ["a.png", "a", "a.png 2"]),
        (["p/x/a.jpg", "p/y/a.jpg"], ["x/a", "y/a"]),
        (["a.jpg", "../../z/b.jpg"], ["here/now/a", "z/b"]),
        (["x/../a.jpg", "./b.jpg"], ["a", "b"]),
    ],
)
def test_each_photo_has_a_file(
    names: list[str], files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here" / "now").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here" / "now")
    assert _files(names) == files
