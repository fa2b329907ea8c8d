"""Strict reading of a JSON object, field by field, with one-sentence errors.

Files travel between machines and get edited by hand. A reader that guesses turns a slip in one
field into a strange failure an hour later; this one names the field and stops.
"""

import contextlib
import json
import math
from typing import Any

from pocketune.errors import PocketuneError

_TYPES = {str: "a text", bool: "true or false", int: "a whole number", float: "a number",
          list: "a list", dict: "an object", type(None): "null"}  # fmt: skip


class FieldError(PocketuneError):
    """A field is missing, unknown, or not of its type."""


class Fields:
    """The fields of one JSON object.

    Each method takes one field and fails with :class:`FieldError`; :meth:`finish` fails when a
    field was left over.

    Args:
        data: What was read.
        where: The object's place for messages, such as ``kit/manifest.json``.
    """

    def __init__(self, data: object, where: str) -> None:
        if not isinstance(data, dict):
            raise FieldError(f"{where} must be a JSON object, not {_kind(data)}")
        self._left: dict[str, Any] = dict(data)
        self._where = where

    @classmethod
    def parse(cls, text: bytes, where: str) -> "Fields":
        """Read the text of a JSON file.

        Raises:
            FieldError: The text is not JSON in UTF-8, or not an object.
        """
        try:
            return cls(json.loads(text), where)
        except (ValueError, RecursionError) as error:
            raise FieldError(f"{where} is not valid JSON ({error})") from error

    def integer(self, name: str, minimum: int = 0) -> int:
        """A whole number of at least ``minimum``."""
        return self._integer(self._take(name), repr(name), minimum)

    def number(self, name: str) -> float:
        """A finite number."""
        return self._number(self._take(name), repr(name))

    def text(self, name: str) -> str:
        """A text that is not empty."""
        return self._text(self._take(name), repr(name))

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts."""
        return tuple(self._text(item, f"every item of {name!r}") for item in self._list(name))

    def numbers(self, name: str, length: int) -> tuple[float, ...]:
        """A list of ``length`` finite numbers."""
        items = self._list(name)
        if len(items) != length:
            raise self._error(f"{name!r}", f"a list of {length} numbers", items)
        return tuple(self._number(item, f"every item of {name!r}") for item in items)

    def shape(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers of at least 1; empty for a scalar."""
        return tuple(self._integer(n, f"every item of {name!r}", 1) for n in self._list(name))

    def optional_shape(self, name: str) -> tuple[int, ...] | None:
        """A shape, or null."""
        return None if self._takes_null(name) else self.shape(name)

    def optional_number(self, name: str) -> float | None:
        """A finite number, or null."""
        return None if self._takes_null(name) else self.number(name)

    def mapping(self, name: str) -> dict[str, Any]:
        """An object, as it is."""
        value = self._take(name)
        if not isinstance(value, dict):
            raise self._error(repr(name), "an object", value)
        return value

    def integers_by_name(self, name: str) -> dict[str, int]:
        """An object of whole numbers of at least 0."""
        items = self.mapping(name).items()
        return {key: self._integer(n, f"{name}.{key}", 0) for key, n in items}

    def texts_by_name(self, name: str) -> dict[str, str]:
        """An object of texts."""
        items = self.mapping(name).items()
        return {key: self._text(value, f"{name}.{key}") for key, value in items}

    def nested(self, name: str) -> "Fields":
        """The fields of an object inside this one."""
        return Fields(self._take(name), f"{self._where}: {name!r}")

    def optional_nested(self, name: str) -> "Fields | None":
        """The fields of an object inside this one, or null."""
        return None if self._takes_null(name) else self.nested(name)

    def nested_list(self, name: str) -> tuple["Fields", ...]:
        """The fields of each object of a list."""
        items = enumerate(self._list(name))
        return tuple(Fields(item, f"{self._where}: {name}[{index}]") for index, item in items)

    def finish(self) -> None:
        """Fail when the object has a field that nobody asked for."""
        if self._left:
            raise FieldError(f"{self._where} has the unknown field {next(iter(self._left))!r}")

    def _take(self, name: str) -> Any:
        if name not in self._left:
            raise FieldError(f"{self._where} lacks the field {name!r}")
        return self._left.pop(name)

    def _takes_null(self, name: str) -> bool:
        """Whether the field is null, which is then done with."""
        if name in self._left and self._left[name] is None:
            del self._left[name]
            return True
        return False

    def _list(self, name: str) -> list[Any]:
        value = self._take(name)
        if not isinstance(value, list):
            raise self._error(repr(name), "a list", value)
        return value

    def _integer(self, value: object, what: str, minimum: int) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise self._error(what, f"a whole number of at least {minimum}", value)
        return value

    def _number(self, value: object, what: str) -> float:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            with contextlib.suppress(OverflowError):  # a whole number beyond all floats
                if math.isfinite(value):
                    return float(value)
        raise self._error(what, "a finite number", value)

    def _text(self, value: object, what: str) -> str:
        if not isinstance(value, str) or not value:
            raise self._error(what, "a text that is not empty", value)
        return value

    def _error(self, what: str, expected: str, value: object) -> FieldError:
        shown = repr(value) if isinstance(value, (str, int, float)) else _kind(value)
        return FieldError(f"{self._where}: {what} must be {expected}, not {shown[:80]}")


def _kind(value: object) -> str:
    return _TYPES.get(type(value), type(value).__name__)
