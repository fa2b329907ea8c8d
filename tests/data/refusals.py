"""What is said where photos cannot be used."""

from pathlib import Path
from typing import Any

import pytest

from pocketune.data import load_splits
from pocketune.errors import PocketuneError


def refusal(path: Path, *, longest: int = 600, **options: Any) -> str:
    """The sentence: one line, not much longer than a name, that any terminal can print."""
    with pytest.raises(PocketuneError) as caught:
        load_splits(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < longest
    message.encode("utf-8")
    return message
