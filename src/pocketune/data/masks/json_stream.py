"""Read the lists of a large JSON object element by element, in little memory."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import IO, Any

_AT_ONCE = 1 << 16  # characters
_SPACE = " \t\r\n"
_ENDS = (*_SPACE, *",:]}")
_IN_TEXT = re.compile(r'["\\]')


def members(file: IO[str], without: str | None = None) -> Iterator[tuple[str, Any]]:
    """Each member of the object in a file; of a list, each element with the name of the list.

    >>> import io
    >>> list(members(io.StringIO('{"a": [1, {"b": 2}], "c": "d"}')))
    [('a', 1), ('a', {'b': 2}), ('c', 'd')]

    Args:
        file: Text.
        without: The name of a member that is left out; if it is text, it is never in memory.

    Raises:
        ValueError: It is not a JSON object.
    """
    text = _Text(file)
    text.expect("{")
    while text.following() != "}":
        name = text.value()
        text.expect(":")
        if name == without and text.following() == '"':
            text.skip()
        elif name == without:
            text.value()
        elif text.following() == "[":
            for element in _elements(text):
                yield name, element
        else:
            yield name, text.value()
        if text.following() != "}":
            text.expect(",")
    text.expect("}")
    text.expect("")


def _elements(text: _Text) -> Iterator[Any]:
    text.expect("[")
    while text.following() != "]":
        yield text.value()
        if text.following() != "]":
            text.expect(",")
    text.expect("]")


class _Text:
    """A text of which only a part is in memory."""

    def __init__(self, file: IO[str]) -> None:
        self._file, self._decode = file, json.JSONDecoder().raw_decode
        self._part, self._place = "", 0

    def following(self) -> str:
        """The next character that is not a space; empty at the end."""
        while True:
            while self._place < len(self._part):
                if self._part[self._place] not in _SPACE:
                    return self._part[self._place]
                self._place += 1
            if not self._more():
                return ""

    def expect(self, character: str) -> None:
        """Read this character, or the end of the text."""
        if self.following() != character:
            raise ValueError(f"there is no {character or 'end'!r} where one has to be")
        self._place += 1

    def value(self) -> Any:
        """Read a value."""
        self.following()
        while True:
            try:
                found, end = self._decode(self._part, self._place)
            except ValueError:
                if not self._more():
                    raise
            else:
                # More of a number may follow.
                if self._part[end : end + 1] in _ENDS or not self._more():
                    self._place = end
                    return found

    def skip(self) -> None:
        """Pass over a text in quotation marks."""
        self.expect('"')
        while True:
            mark = _IN_TEXT.search(self._part, self._place)
            if mark is None:
                self._place = len(self._part)
            elif mark[0] == '"':
                self._place = mark.end()
                return
            elif mark.end() < len(self._part):
                self._place = mark.end() + 1  # what a backslash is before does not end the text
                continue
            else:
                self._place = mark.start()
            if not self._more():
                raise ValueError("Unterminated string")

    def _more(self) -> bool:
        """Have more of the text in memory: twice as much, so that a long value is read soon."""
        self._part = self._part[self._place :]
        self._place = 0
        found = self._file.read(max(_AT_ONCE, len(self._part)))
        self._part += found
        return bool(found)
