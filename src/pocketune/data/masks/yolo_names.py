"""The names of classes in a `data.yaml` of YOLO, without a reader of YAML."""

from __future__ import annotations

import re

_KEY = re.compile(r"names\s*:(.*)")
_TEXT = r"""'(?:[^']|'')*'|"(?:[^"\\]|\\.)*\""""
_COMMENT = re.compile(rf"({_TEXT})|(?:^|\s)#.*")
_IN_BRACKETS = re.compile(rf"\s*(?:(\d+)\s*:\s*)?({_TEXT}|[^\s,'\"][^,]*?)\s*(?:,|$)")
_BRACKETS = {
    "[": re.compile(rf"\[((?:{_TEXT}|[^'\"\]])*)\]"),
    "{": re.compile(rf"\{{((?:{_TEXT}|[^'\"}}])*)\}}"),
}
_UNKNOWN = "its names are neither a list nor a mapping of numbers"
_IN_LINE = re.compile(r"\s*(?:-|(\d+)\s*:)\s+(.*?)\s*")


def parse_names(text: str) -> dict[int, str]:
    r"""The name of each class by its number.

    They are a list or a mapping, in brackets or on lines of their own:

    >>> parse_names("nc: 2\nnames: ['cat', dog]")
    {0: 'cat', 1: 'dog'}
    >>> parse_names("names:\n  0: cat\n  3: dog")
    {0: 'cat', 3: 'dog'}

    Raises:
        ValueError: They cannot be read.
    """
    lines = [_COMMENT.sub(r"\1", line).rstrip() for line in text.splitlines()]
    start = next((number for number, line in enumerate(lines) if _KEY.fullmatch(line)), None)
    if start is None:
        return {}
    first = lines[start].partition(":")[2].strip()
    if first[:1] in ("[", "{"):
        pairs = _in_brackets(" ".join([first, *lines[start + 1 :]]))
    else:
        pairs = [] if first else _on_lines(lines[start + 1 :])
    names = {
        position if number is None else int(number): _plain(value)
        for position, (number, value) in enumerate(pairs)
    }
    if not names or not all(names.values()):
        raise ValueError(_UNKNOWN)
    return names


def _in_brackets(text: str) -> list[tuple[str | None, str]]:
    """The pairs of number and name up to the closing bracket."""
    whole = _BRACKETS[text[0]].match(text)
    inside = whole[1].strip().removesuffix(",") if whole else ","
    found, place = [], 0
    while place < len(inside):
        pair = _IN_BRACKETS.match(inside, place)
        if pair is None:
            raise ValueError(_UNKNOWN)
        found.append((pair[1], pair[2]))
        place = pair.end()
    return found


def _on_lines(lines: list[str]) -> list[tuple[str | None, str]]:
    """The pairs of number and name of the lines until that of another key."""
    found = []
    for line in filter(None, lines):
        pair = _IN_LINE.fullmatch(line)
        if pair is None or (pair[1] and not line[0].isspace()):
            break
        found.append((pair[1], pair[2]))
    return found


def _plain(value: str) -> str:
    """A text without its quotation marks."""
    if value[:1] == "'":
        return value[1:-1].replace("''", "'").strip()
    return (re.sub(r"\\(.)", r"\1", value[1:-1]) if value[:1] == '"' else value).strip()
