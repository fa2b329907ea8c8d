"""Errors, and checks that many arguments have in common."""

import pickle
import signal
from typing import Any

import numpy as np
import pytest
from torch import nn

from pocketune import TopBlocks, adapt, create_network
from pocketune.data import UnreadableImage
from pocketune.device.train.interrupt import Interrupted, NothingKept
from pocketune.errors import (
    PocketuneError,
    Remedy,
    check_choice,
    check_positive,
    check_truth,
    counted,
    real_number,
    warn,
    whole_number,
)


@pytest.mark.parametrize("number", [1, 224, np.int64(1), np.uint8(8)])
def test_whole_numbers_of_any_library_from_1_on(number: Any) -> None:
    check_positive(batch=number)
    assert type(whole_number(number)) is int


@pytest.mark.parametrize("number", [0, -1, 1.0, True, "8", None, np.float32(1), np.bool_(True)])
def test_what_is_not_a_positive_integer_is_named(number: Any) -> None:
    with pytest.raises(PocketuneError) as error:
        check_positive(size=224, batch=number)
    assert str(error.value) == f"batch={number!r} must be a whole number of at least 1"


def test_real_numbers_of_any_library() -> None:
    assert [type(real_number(value)) for value in (1, 0.5, np.float32(0.5), np.int8(1))] == [
        *(int, float, float, float),
    ]
    assert [real_number(value) for value in (True, "1", None, np.bool_(True))] == [None] * 4


def test_a_remedy_ends_the_message() -> None:
    error = PocketuneError("it is full", remedy=Remedy("more", "give {size} MB more", size=3))
    assert str(error) == "it is full; give 3 MB more"
    assert error.message == "it is full"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_things_are_counted_in_words() -> None:
    assert [counted(n, "step") for n in (0, 1, 2, 1500)] == [
        *("0 steps", "1 step", "2 steps", "1,500 steps"),
    ]


def test_choices() -> None:
    check_choice(("a", "b"), side="a", place="b")
    check_choice({8: "eight"}, bits=8)
    with pytest.raises(PocketuneError) as error:
        check_choice(("a", "b"), side="a", place=[])
    assert str(error.value) == "place=[] must be one of a, b"


@pytest.mark.parametrize(
    "error",
    [
        UnreadableImage("a.jpg", "it is damaged"),
        Interrupted("stopped", "runs/a", signal.SIGTERM),
        NothingKept("runs/a"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_leave_a_process(error: PocketuneError) -> None:
    """A pool of processes pickles them."""
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (str(copy), copy.args) == (str(error), error.args)
    assert {**vars(copy), "remedy": None} == {**vars(error), "remedy": None}


def test_truths() -> None:
    check_truth(forward=True, bias=False)
    with pytest.raises(PocketuneError, match=r"^bias='no' must be True or False$"):
        check_truth(forward=True, bias="no")


def test_a_warning_is_of_the_line_that_called_the_library() -> None:
    with pytest.warns(UserWarning, match="folded") as caught:
        warn("folded")
    network = create_network("mobilenet_v2", width=0.1, classes=2, weights=None)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.constant_(module.running_var, 1 - module.eps)
    with pytest.warns(UserWarning, match="folded in the weights") as deep:
        adapt(network, TopBlocks(1))
    assert {each.filename for each in (*caught, *deep)} == {__file__}
