"""Strict reading of JSON into dataclasses, with errors of one sentence.

Files travel between machines and get edited by hand. A reader that guesses turns a slip in one
field into a strange failure an hour later; this one names the field and stops. A dataclass
describes its object completely: the reader follows the annotations of its fields.

Annotations may be `str` (not empty), `int` (0 or more), `Positive`, `float` (finite),
a dataclass (an object of exactly its fields), `tuple[T, ...]` and `tuple[T, T]` (lists),
`dict[str, T]` (an object of any names), `Literal[...]` (one of these values), `T | None` (or
null) and `Any`. Every field is required, even one with a default. A dataclass with a class
method `variants` stands for the classes that the method returns by name; it is called with the
object's field `name`, which selects one of them.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pocketune.errors import PocketuneError

T = TypeVar("T")

Positive = Annotated[int, 1]
"""A whole number of at least 1."""
Shape = tuple[Positive, ...]
"""Sizes of a tensor; empty for a scalar."""

_KINDS = {str: "a string", bool: "true or false", int: "a whole number", float: "a number",
          list: "a list", dict: "an object", type(None): "null"}  # fmt: skip


class FieldError(PocketuneError):
    """A field is missing, unknown, or not of its type."""


def parse_object(text: bytes, where: str) -> dict[str, Any]:
    """The object that a JSON file holds.

    Args:
        text: The file's bytes.
        where: The file's place for messages, such as `kit/manifest.json`.

    Raises:
        FieldError: The text is not JSON in UTF-8, or not an object.
    """
    try:
        return _object(json.loads(text), _Place(where))
    except (ValueError, RecursionError) as error:
        raise FieldError(f"{where} is not valid JSON ({error})") from error


def read_object(kind: type[T], data: object, where: str) -> T:
    """An instance of a dataclass from a JSON object of exactly its fields.

    Args:
        kind: The dataclass.
        data: The JSON object.
        where: The object's place for messages.

    Raises:
        FieldError: A field is missing, unknown or of the wrong type, or the dataclass refuses
            the values.
    """
    return _read_fields(kind, data, _Place(where))


def read_versioned(kind: type[T], data: object, where: str, schema: int, remedy: str = "") -> T:
    """The same for an object whose field `schema` is the version of its fields.

    Args:
        kind: The dataclass.
        data: The JSON object.
        where: The object's place for messages.
        schema: The version that is read.
        remedy: What to do about another version.

    Raises:
        FieldError: It is of another version; or see `read_object`.
    """
    if isinstance(data, dict) and data.get("schema", schema) != schema:
        raise FieldError(
            f"{where} was written by another version of Pocketune (its schema is "
            f"{data['schema']!r}, this version reads {schema})" + f"; {remedy}" * bool(remedy)
        )
    return read_object(kind, data, where)


@dataclass(frozen=True)
class _Place:
    """A value's file and its path in the file's object, such as `parameters[0].name`."""

    file: str
    path: str = ""

    def __str__(self) -> str:
        return f"{self.file}: {self.path!r}" if self.path else self.file

    def field(self, name: str) -> _Place:
        return replace(self, path=f"{self.path}.{name}" if self.path else name)

    def item(self, index: int) -> _Place:
        return replace(self, path=f"{self.path}[{index}]")

    def expected(self, what: str, value: object) -> FieldError:
        kind = _KINDS.get(type(value), type(value).__name__)
        shown = repr(value) if isinstance(value, (str, int, float)) else kind
        return FieldError(f"{self} must be {what}, not {shown[:80]}")


def _read_fields(kind: type[T], data: object, place: _Place) -> T:
    left = dict(_object(data, place))
    variants = getattr(kind, "variants", None)
    if variants is not None:
        name = left.pop("name", None)
        kind = _variant(variants(name), name, place)
    values = {}
    hints = get_type_hints(kind, include_extras=True)
    for name in (field.name for field in fields(kind)):  # type: ignore[arg-type]
        if name not in left:
            raise FieldError(f"{place} lacks the field {name!r}")
        values[name] = _read(hints[name], left.pop(name), place.field(name))
    if left:
        raise FieldError(f"{place} has the unknown field {next(iter(left))!r}")
    try:
        return kind(**values)
    except PocketuneError as error:  # its fields contradict each other
        raise FieldError(f"{place}: {error}") from error


def _variant(variants: Mapping[str, type[T]], name: object, place: _Place) -> type[T]:
    if not isinstance(name, str) or name not in variants:
        raise place.field("name").expected(f"one of {', '.join(variants)}", name)
    return variants[name]


def _read(hint: Any, value: object, place: _Place) -> Any:
    """The value, converted to the type that its field declares."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin is Literal:
        if not any(type(value) is type(known) and value == known for known in arguments):
            raise place.expected(f"one of {', '.join(map(str, arguments))}", value)
        return value
    if origin in (UnionType, Union):  # the latter for a union with an Annotated type
        return None if value is None else _read(arguments[0], value, place)
    if origin is tuple:
        return tuple(_read_list(arguments, value, place))
    if origin is dict:
        items = _object(value, place).items()
        return {key: _read(arguments[1], item, place.field(key)) for key, item in items}
    if is_dataclass(hint):
        return _read_fields(hint, value, place)  # type: ignore[arg-type]
    if hint is str:
        return _text(value, place)
    if hint is float:
        return _number(value, place)
    return _whole(value, arguments[1] if origin is Annotated else 0, place)


def _read_list(hints: tuple[Any, ...], value: object, place: _Place) -> Iterator[Any]:
    if not isinstance(value, list):
        raise place.expected("a list", value)
    if hints[1:] != (...,) and len(value) != len(hints):
        raise place.expected(f"a list of {len(hints)} values", value)
    for index, item in enumerate(value):
        yield _read(hints[0], item, place.item(index))


def _object(value: object, place: _Place) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise place.expected("a JSON object", value)
    return value


def _text(value: object, place: _Place) -> str:
    if not isinstance(value, str) or not value:
        raise place.expected("a non-empty string", value)
    return value


def _whole(value: object, minimum: int, place: _Place) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise place.expected(f"a whole number of at least {minimum}", value)
    return value


def _number(value: object, place: _Place) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):  # a whole number too large for a float
            if math.isfinite(value):
                return float(value)
    raise place.expected("a finite number", value)
