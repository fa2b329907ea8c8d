"""The kits that come with the package, by their names."""

from pathlib import Path

import pytest

from pocketune.kit.bundled import bundled_kit, kit_path
from pocketune.kit.names import MANIFEST


def test_a_folder_of_that_name_is_not_the_kit_unless_it_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("masks").mkdir()  # as photos with masks have it
    assert kit_path("masks") == bundled_kit("masks")
    (Path("masks") / MANIFEST).write_text("{}")
    assert kit_path("masks") == Path("masks")
    Path("blocks").write_text("")
    assert kit_path("blocks") == Path("blocks")
    assert kit_path("mine") == Path("mine")
