"""Fixtures that several folders of tests share."""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Tests run side by side, and threads that wait for a processor spin: with more than one, half of
# the processors' time goes there. PyTorch reads this where it is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell lets what it runs in the background ignore Ctrl-C, and so would the processes that tests
# start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The first call of an operator takes seconds on a busy machine; no test is about time. Examples are
# the same in every run; `pytest --hypothesis-profile search` looks for others.
settings.register_profile("search", deadline=None, max_examples=60)
settings.register_profile("pocketune", settings.get_profile("search"), derandomize=True)
settings.load_profile("pocketune")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Give a test the same random weights in whatever process and after whatever other it runs."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


def pytest_collection_finish() -> None:
    """Leave the tests themselves out of garbage collection, which would visit them all each time.

    They are some million objects that live to the end.
    """
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let libraries find nothing of theirs left at the exit."""
    gc.unfreeze()


_FSYNC = os.fsync


@pytest.fixture(scope="session", autouse=True)
def _unflushed() -> Iterator[None]:
    """Files of tests need not survive a power cut, and flushing one takes the disk milliseconds.

    Only that the descriptor is open is checked. The processes that tests start do flush.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are flushed to the disk, as outside of tests."""
    monkeypatch.setattr(os, "fsync", _FSYNC)


@pytest.fixture(scope="session", autouse=True)
def cache_of_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty cache folder, so that no test reads or changes the user's own."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POCKETUNE_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real images and weights that tests may read; the project never contains it."""
    default = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("POCKETUNE_SHARED_DATA", default))
    if not folder.is_dir():
        pytest.skip(f"no real images and weights at {folder}; set POCKETUNE_SHARED_DATA")
    return folder
