"""The modules that commands import, and those to read for following a run to a gradient."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import pocketune
from pocketune.demo import unpack_digits

from ..device.runs import write_photos, write_run
from ..device.tiny_kit import CLASSES
from .conftest import environment

MOST = 80

# A module is entered when one of its functions runs; importing it is not enough.
ENTERED = """
import inspect, json, sys, threading

entered = set()

def note(frame, event, _):
    if event == "call" and frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # no module, no class
        entered.add(frame.f_code.co_filename)

threading.setprofile(note)
sys.setprofile(note)
from pocketune.__main__ import main

try:
    main()
finally:
    sys.setprofile(None)
    with open("entered.json", "w") as file:
        json.dump(sorted(entered), file)
"""

SUBJECTS = ("data", "device", "kit", "tasks")


def test_a_short_run_enters_few_modules(tmp_path: Path) -> None:
    """Only the subjects count: a reader need not know the command line and the errors."""
    unpack_digits(tmp_path / "photos")
    for digit in (tmp_path / "photos").iterdir():  # fewer are followed sooner
        for each in sorted(digit.iterdir())[3:]:
            each.unlink()
    arguments = ["train", "photos", "--out", "run", "--steps", "2"]
    subprocess.run(
        [sys.executable, "-c", ENTERED, *arguments],
        cwd=tmp_path,
        env=environment(),
        check=True,
        capture_output=True,
    )
    root = Path(pocketune.__file__).parent
    files = [Path(name) for name in json.loads((tmp_path / "entered.json").read_text())]
    modules = [path.relative_to(root) for path in files if path.is_relative_to(root)]
    entered = sorted(str(path) for path in modules if path.parts[0] in SUBJECTS)
    assert "device/train/loop.py" in entered
    assert len(entered) <= MOST, "\n".join(entered)


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_using_a_run_does_not_import_what_exports_it(command: str, tmp_path: Path) -> None:
    """Protocol buffers take 3 MB."""
    write_run(tmp_path / "run")
    write_photos(tmp_path / "photos", CLASSES, each=1)
    program = (
        "import sys; from pocketune.__main__ import main\n"
        "try: main()\nfinally: print('google.protobuf' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, command, "run", "photos"],
        cwd=tmp_path,
        env=environment(),
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.endswith("False\n")
