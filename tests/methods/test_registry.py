"""Methods by name and as plain data."""

import json
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pytest

from pocketune.errors import PocketuneError
from pocketune.methods import (
    BiasAndLast,
    LastLayer,
    Method,
    TopBlocks,
    compose_method,
    create_method,
    describe_method,
    list_methods,
    method_from_dict,
    method_to_dict,
    register_method,
    registry,
)

METHODS = [create_method(name) for name in list_methods()]


def test_names() -> None:
    assert list_methods()[:5] == ["full", "last", "norm", "bias", "blocks"]


@pytest.mark.parametrize("name", list_methods())
def test_a_method_knows_its_name(name: str) -> None:
    assert create_method(name).name == name


@pytest.mark.parametrize("name", list_methods())
def test_a_method_describes_itself_in_a_sentence(name: str) -> None:
    assert describe_method(name).endswith(".")


def test_options() -> None:
    assert create_method("blocks", blocks=5) == TopBlocks(blocks=5)


@pytest.mark.parametrize("names", ["blocks", "blocks+last"])
def test_the_name_of_a_method_is_no_option(names: str) -> None:
    with pytest.raises(PocketuneError, match=r"option name(; it has blocks)?$"):
        compose_method(names, {"name": "last"})


@pytest.mark.parametrize("method", [*METHODS, TopBlocks(7), LastLayer() + TopBlocks(2)], ids=str)
def test_json_round_trip(method: Method) -> None:
    assert method_from_dict(json.loads(json.dumps(method_to_dict(method)))) == method


TRUTHS = [
    (type(method), field.name)
    for method in METHODS
    for field in fields(method)  # type: ignore[arg-type]
    if isinstance(getattr(method, field.name), bool)
]


@pytest.mark.parametrize("value", ["no", "false", 0, None])
@pytest.mark.parametrize(("method", "option"), TRUTHS)
def test_what_is_true_or_false(method: type[Method], option: str, value: object) -> None:
    with pytest.raises(PocketuneError, match=f"^{option}={value!r} must be True or False$"):
        method(**{option: value})


def test_numbers_of_numpy_become_pythons_own() -> None:
    method = create_method("blocks", blocks=np.int64(3))
    assert method == TopBlocks(3)
    assert json.dumps(method_to_dict(method)) == '{"name": "blocks", "blocks": 3}'


def test_data() -> None:
    assert method_to_dict(TopBlocks(3)) == {"name": "blocks", "blocks": 3}
    assert method_to_dict(BiasAndLast() + TopBlocks(1)) == {
        "name": "sum",
        "methods": [{"name": "bias"}, {"name": "blocks", "blocks": 1}],
    }


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "magic"}, "no method 'magic'; choose from full, last"),
        ({"name": "blocks", "layers": 3}, "blocks has no option layers; it has blocks"),
        ({"name": "last", "blocks": 3}, "last has no option blocks; it has none"),
        ({}, "has no name"),
        ({"name": ["last"]}, "has no name"),
        ({"name": "sum"}, "has 'methods'"),
        ({"name": "sum", "methods": []}, "at least one method"),
        ({"name": "sum", "methods": "last"}, "has 'methods'"),
        ({"name": "sum", "methods": ["last"]}, "has no name"),
        ({"name": "sum", "methods": [{"name": "last"}], "blocks": 3}, "nothing else"),
    ],
    ids=str,
)
def test_bad_data_is_an_error(values: dict[str, Any], message: str) -> None:
    with pytest.raises(PocketuneError, match=message):
        method_from_dict(values)


@pytest.mark.parametrize("name", ["last", "sum"])
def test_a_name_is_given_once(name: str) -> None:
    with pytest.raises(PocketuneError, match=f"is called {name} already; give TopBlocks another"):
        register_method(name)(TopBlocks)


@pytest.mark.parametrize("name", ["lEa+ky", "a+b", "Leaky", "", "1st", "a b", None, 3])
def test_names_are_words_in_lower_case(name: Any) -> None:
    with pytest.raises(PocketuneError, match="must be lower-case letters"):
        register_method(name)


def test_a_class_that_is_defined_again_takes_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a notebook's cell does that runs twice."""
    monkeypatch.setattr(registry, "_methods", {**registry._methods})

    def cell() -> type[Method]:
        @register_method("own")
        @dataclass(frozen=True)
        class Own(LastLayer):
            pass

        return Own

    first, second = cell(), cell()
    assert first is not second
    assert type(create_method("own")) is second
    assert method_to_dict(second()) == {"name": "own"}


def test_names_with_a_plus_between_are_a_sum() -> None:
    assert create_method("blocks+last", blocks=2) == TopBlocks(2) + LastLayer()
    with pytest.raises(
        PocketuneError, match=r"none of the methods blocks\+last has the option rank"
    ):
        create_method("blocks+last", rank=2)


def test_a_method_in_words_has_the_options_that_are_no_defaults() -> None:
    method = TopBlocks() + create_method("mobiletl", norm="shift")
    assert str(method) == "TopBlocks() + MobileTL(norm='shift')"
    assert repr(TopBlocks() + LastLayer()) == "TopBlocks(blocks=3) + LastLayer()"
