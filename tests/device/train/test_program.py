"""What a run leaves behind in the process of a program."""

import subprocess
import sys
from pathlib import Path

import pytest

from ..runs import write_photos

PROGRAM = """
import gc, locale, logging, os, signal, sys, threading, warnings
import numpy as np
from PIL import Image, ImageFile
import pocketune
from pocketune.device import Silent

def state():
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    root = logging.getLogger()
    return {
        "signals": handlers,
        "logging": (root.level, list(root.handlers)),
        "warnings": list(warnings.filters),
        "hooks": (sys.excepthook, threading.excepthook, sys.unraisablehook),
        "locale": locale.setlocale(locale.LC_ALL),
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "path": list(sys.path),
        "streams": (sys.stdin, sys.stdout, sys.stderr),
        "numpy": (np.geterr(), np.get_printoptions(), np.random.get_state()[1].tolist()),
        "pillow": (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES),
        "collector": (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()),
        "interpreter": (sys.getswitchinterval(), sys.getrecursionlimit()),
        "threads": threading.enumerate(),
    }

def use(run):
    pocketune.train("last", sys.argv[1], run, epochs=1, progress=Silent())
    list(pocketune.predict(run, sys.argv[1]))
    pocketune.evaluate(run)
    pocketune.Predictor(run).predict(np.zeros((9, 9, 3), np.uint8))

def descriptors():
    gc.collect()
    return len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0

before = state()
use("first")
assert state() == before, {key for key, value in state().items() if value != before[key]}
opened = descriptors()
use("second")
assert descriptors() == opened
"""


@pytest.mark.parametrize("options", [(), ("-W", "error", "-X", "dev")], ids=["plain", "strict"])
def test_a_program_is_as_it_was(options: tuple[str, ...], tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "photos", ("cat", "dog"), each=10)
    command = [sys.executable, *options, "-c", PROGRAM, str(photos)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ""
