"""Plans in tests need not survive a power cut."""

from collections.abc import Iterator

import pytest

from pocketune import files


@pytest.fixture(autouse=True, scope="module")
def _unsynced() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "sync", lambda path: None)
        yield
