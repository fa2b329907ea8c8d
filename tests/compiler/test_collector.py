"""The garbage collector rests while a step is compiled, and only then."""

import gc

import pytest

from pocketune.compiler.collector import paused_collector


@paused_collector()
def fails() -> None:
    assert not gc.isenabled()
    raise KeyError


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_it_was_afterwards(enabled: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with pytest.raises(KeyError):
            fails()
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()
