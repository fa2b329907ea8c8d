"""The folder of a plan or a comparison: nobody else's, and one process's at a time."""

import subprocess
import sys
from pathlib import Path

import pytest

from pocketune.errors import PocketuneError
from pocketune.resumable import COMPARISON, PLAN, own_folder

HOLD = """
import sys
from pathlib import Path
from pocketune.resumable import PLAN, own_folder
with own_folder(Path(sys.argv[1]), PLAN):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_folder_that_stays_empty_is_removed(tmp_path: Path) -> None:
    with own_folder(tmp_path / "a" / "b", PLAN):
        assert (tmp_path / "a" / "b").is_dir()
    assert not list(tmp_path.iterdir())


def test_what_is_put_there_stays_alone(tmp_path: Path) -> None:
    folder = tmp_path / "plan"
    for _ in range(2):
        with own_folder(folder, PLAN):
            (folder / PLAN).write_text("{}")
    assert [each.name for each in folder.iterdir()] == [PLAN]


@pytest.mark.parametrize(
    ("file", "own", "said"),
    [
        ("result.json", PLAN, "holds a run: choose another folder"),
        ("last.safetensors", COMPARISON, "holds a run"),
        ("manifest.json", PLAN, "holds a kit"),
        (COMPARISON, PLAN, "holds a comparison"),
        (PLAN, COMPARISON, "holds a plan"),
        ("a.jpg", PLAN, "holds other files, such as a.jpg: choose another folder"),
    ],
)
def test_others_folders_are_refused(tmp_path: Path, file: str, own: str, said: str) -> None:
    (tmp_path / file).write_text("{}")
    with pytest.raises(PocketuneError, match=said), own_folder(tmp_path, own):
        pass
    assert [each.name for each in tmp_path.iterdir()] == [file]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(PocketuneError, match="cannot be written"),
        own_folder(tmp_path / "file", PLAN),
    ):
        pass


def test_one_process_at_a_time(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        busy = pytest.raises(PocketuneError, match="another process is working in")
        with busy, own_folder(tmp_path, PLAN):
            pass
        other.communicate()
    with own_folder(tmp_path, PLAN):
        pass
