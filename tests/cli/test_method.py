"""Methods as command lines name them."""

import pytest

from pocketune.cli.method import parse_method
from pocketune.errors import PocketuneError
from pocketune.methods import BiasAndLast, GradientFilter, MobileTL, SignedBackward, TopBlocks


@pytest.mark.parametrize(
    ("names", "blocks", "options", "method"),
    [
        ("bias", None, None, BiasAndLast()),
        ("blocks", 2, [], TopBlocks(blocks=2)),
        ("blocks", None, ["blocks=2"], TopBlocks(blocks=2)),
        ("mobiletl", 1, ["norm=shift", "signed=False"], MobileTL(1, norm="shift", signed=False)),
        (
            "gradfilter",
            None,
            ["layers=stem.0,fusion.0"],
            GradientFilter(layers=("stem.0", "fusion.0")),
        ),
        (
            "gradfilter",
            None,
            ["patch=stem.0:2,fusion.0:4"],
            GradientFilter({"stem.0": 2, "fusion.0": 4}),
        ),
        ("gradfilter", None, ["patch=stem.0:2"], GradientFilter({"stem.0": 2})),
        ("gradfilter", None, ["layers=stem.0,"], GradientFilter(layers=("stem.0",))),
        ("blocks+signed", 2, None, TopBlocks(blocks=2) + SignedBackward()),
        ("bias+mobiletl", 1, ["norm=all"], BiasAndLast() + MobileTL(1, norm="all")),
    ],
)
def test_names_and_options(names, blocks, options, method):
    assert parse_method(names, blocks, options) == method


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        ("nothing", [], "there is no method 'nothing'"),
        ("bias+nothing", [], "there is no method 'nothing'"),
        ("bias", ["norm=all"], "method bias has no option norm"),
        ("bias+last", ["norm=all"], r"none of the methods bias\+last has the option norm"),
        ("mobiletl", ["norm"], "'norm' is not of the form NAME=VALUE"),
        ("mobiletl", ["=all"], "'=all' is not of the form NAME=VALUE"),
        ("gradfilter", ["layers=,"], "'layers=,' is not of the form NAME=VALUE"),
        (
            "gradfilter",
            ["alignment=paper,natural"],
            r"alignment=\['paper', 'natural'\] must be one",
        ),
        ("mobiletl", ["signed=no"], "signed='no' must be true or false"),
        ("mobiletl", ["blocks=true"], "blocks=True must be a whole number"),
        ("mobiletl", ["norm=inner"], "norm='inner' must be one of"),
    ],
)
def test_what_makes_no_method(names, options, message):
    with pytest.raises(PocketuneError, match=message):
        parse_method(names, None, options)


def test_batch_and_size_of_the_command_are_those_of_a_method_that_measures():
    given = parse_method("blocks+gradfilter", None, ["size=48"], batch=2, size=32)
    assert given == TopBlocks() + GradientFilter(batch=2, size=48)
    assert parse_method("blocks", 2, None, batch=2, size=32) == TopBlocks(2)
