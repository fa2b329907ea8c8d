"""Names that are imported on first use, by several threads at a time."""

import subprocess
import sys

THREADS = """
import threading
from concurrent.futures import ThreadPoolExecutor
import pocketune

names = ["train", "predict", "evaluate", "Delta", "plan", "Predictor", "Kit", "TrainSettings"]
together = threading.Barrier(len(names))

def look_up(name):
    together.wait()
    return getattr(pocketune, name)

with ThreadPoolExecutor(len(names)) as pool:
    found = list(pool.map(look_up, names))
assert [each.__name__ for each in found] == names
"""


def test_threads_may_be_the_first_to_use_the_package() -> None:
    """As those of a server, whose first requests come together."""
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
