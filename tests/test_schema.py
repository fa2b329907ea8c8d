"""The reader that follows the annotations of a dataclass."""

import contextlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pocketune.errors import PocketuneError
from pocketune.schema import FieldError, Positive, Shape, parse_object, read_object, read_versioned


@dataclass(frozen=True)
class Tensor:
    name: str
    shape: Shape


@dataclass(frozen=True)
class Example:
    """One field of each kind."""

    count: Positive
    rest: int
    share: float
    names: tuple[str, ...]
    pair: tuple[float, float]
    tensors: tuple[Tensor, ...]
    first: Tensor | None
    sizes: dict[str, Positive]
    free: dict[str, Any]
    kind: Literal["main", "branch", 8]
    label: str = "a default is not for the reader"

    def __post_init__(self) -> None:
        if self.rest > self.count:
            raise PocketuneError(f"has {self.rest} left of {self.count}")


EXAMPLE = Example(
    count=3,
    rest=0,
    share=0.5,
    names=("a", "ключ"),
    pair=(0.0, -1.5),
    tensors=(Tensor("w", (2, 3)), Tensor("scale", ())),
    first=None,
    sizes={"step": 2},
    free={"anything": [1, None]},
    kind="main",
)


def read(**changes: object) -> Example:
    values = {**json.loads(json.dumps(asdict(EXAMPLE))), **changes}
    return read_object(Example, parse_object(json.dumps(values).encode(), "f.json"), "f.json")


def test_what_is_written_is_read() -> None:
    assert read() == EXAMPLE
    assert read(first={"name": "w", "shape": [1]}).first == Tensor("w", (1,))


def test_a_whole_number_is_a_number_too() -> None:
    share = read(share=1).share
    assert (share, type(share)) == (1.0, float)


@pytest.mark.parametrize("name", list(asdict(EXAMPLE)))
def test_every_field_has_to_be_there(name: str) -> None:
    values = json.loads(json.dumps(asdict(EXAMPLE)))
    del values[name]
    with pytest.raises(FieldError, match=f"^f.json lacks the field '{name}'$"):
        read_object(Example, values, "f.json")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"count": 0}, "'count' must be a whole number of at least 1, not 0"),
        ({"count": True}, "'count' must be a whole number of at least 1, not True"),
        ({"rest": -1}, "'rest' must be a whole number of at least 0, not -1"),
        ({"rest": 1.0}, "'rest' must be a whole number of at least 0, not 1.0"),
        ({"rest": 4}, "has 4 left of 3"),
        ({"share": "1"}, "'share' must be a finite number, not '1'"),
        ({"share": 10**400}, "'share' must be a finite number, not 1000"),
        ({"share": float("nan")}, "'share' must be a finite number, not nan"),
        ({"names": "a"}, "'names' must be a list, not 'a'"),
        ({"names": ["a", ""]}, "'names[1]' must be a non-empty string, not ''"),
        ({"pair": [1]}, "'pair' must be a list of 2 values, not a list"),
        ({"pair": [1, None]}, "'pair[1]' must be a finite number, not null"),
        ({"tensors": [[]]}, "'tensors[0]' must be a JSON object, not a list"),
        ({"tensors": [{"name": "w"}]}, "'tensors[0]' lacks the field 'shape'"),
        ({"first": {"name": "w", "shape": [0]}}, "'first.shape[0]' must be a whole number of at"),
        ({"first": {"name": "w", "shape": [], "x": 1}}, "'first' has the unknown field 'x'"),
        ({"sizes": {"step": 0}}, "'sizes.step' must be a whole number of at least 1, not 0"),
        ({"kind": "other"}, "'kind' must be one of main, branch, 8, not 'other'"),
        ({"kind": 8.0}, "'kind' must be one of main, branch, 8, not 8.0"),
        ({"kind": []}, "'kind' must be one of main, branch, 8, not a list"),
        ({"free": None}, "'free' must be a JSON object, not null"),
    ],
)
def test_an_error_names_the_place_and_what_belongs_there(
    changes: dict[str, object], message: str
) -> None:
    with pytest.raises(FieldError) as caught:
        read(**changes)
    assert str(caught.value).startswith(f"f.json: {message}")


def test_an_unknown_field() -> None:
    with pytest.raises(FieldError, match=r"^f.json has the unknown field 'color'$"):
        read(color="red")


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe", b"[" * 100_000])
def test_not_json(text: bytes) -> None:
    with pytest.raises(FieldError, match=r"f.json is not valid JSON"):
        parse_object(text, "f.json")


@pytest.mark.parametrize("text", [b"null", b"[]", b'"text"', b"1"])
def test_json_that_is_not_an_object(text: bytes) -> None:
    with pytest.raises(FieldError, match=r"f.json must be a JSON object, not"):
        parse_object(text, "f.json")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(st.sampled_from(list(asdict(EXAMPLE))), values)
@example("share", 2**53 + 1)
def test_any_value_is_read_as_its_kind_or_refused(name: str, value: Any) -> None:
    found = None
    with contextlib.suppress(FieldError):  # any other error would be a failure
        found = read(**{name: value})
    if found is not None:
        if name == "share":  # may be a whole number that no float is equal to
            value = float(value)
        assert json.loads(json.dumps(asdict(found)))[name] == value


@dataclass(frozen=True)
class Optional:
    count: Positive | None


def test_a_positive_number_or_null() -> None:
    assert read_object(Optional, {"count": None}, "x").count is None
    assert read_object(Optional, {"count": 3}, "x").count == 3
    with pytest.raises(FieldError, match="'count' must be a whole number of at least 1, not 0"):
        read_object(Optional, {"count": 0}, "x")


@dataclass(frozen=True)
class Versioned:
    name: str
    schema: int = 2


def test_objects_of_another_version_are_refused_before_their_fields_are_read() -> None:
    assert read_versioned(Versioned, {"name": "a", "schema": 2}, "x.json", 2) == Versioned("a")
    message = r"another version of Pocketune \(its schema is 3, this version reads 2\); wait$"
    with pytest.raises(FieldError, match=message):
        read_versioned(Versioned, {"title": "a", "schema": 3}, "x.json", 2, "wait")
