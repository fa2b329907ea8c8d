"""Checks that many arguments have in common."""

import pytest

from pocketune.errors import PocketuneError, check_positive


def test_whole_numbers_from_1_on():
    check_positive(batch=1, size=224)


@pytest.mark.parametrize("number", [0, -1, 1.0, True, "8", None])
def test_what_is_none_is_named(number):
    with pytest.raises(PocketuneError) as error:
        check_positive(size=224, batch=number)
    assert str(error.value) == f"batch={number!r} must be a whole number of at least 1"
