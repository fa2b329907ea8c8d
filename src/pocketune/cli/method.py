"""Methods and their options as command lines name them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pocketune.errors import PocketuneError, author_half

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pocketune.methods import Method


def parse_method(
    method: str, blocks: int | None, method_option: Iterable[str] | None, **step: int
) -> Method:
    """One method, or the sum of several.

    Args:
        method: The name of a method, or several names with `+` between them.
        blocks: Short for the option `blocks=...`.
        method_option: `NAME=VALUE` for each option. In a sum, an option applies to all methods
            that have it.
        step: `batch` and `size` of the images, for methods that measure with them.

    Raises:
        PocketuneError: There is no such method, or no method has such an option.
    """
    with author_half("a method"):
        from pocketune.methods import compose_method

    options = parse_options(method_option)
    if blocks is not None:
        options["blocks"] = blocks
    return compose_method(method, options, **step)


def parse_options(texts: Iterable[str] | None) -> dict[str, Any]:
    """Options of methods from `NAME=VALUE`.

    Raises:
        PocketuneError: A text is not of this form.
    """
    return dict(_parse_option(text) for text in texts or ())


def _parse_option(text: str) -> tuple[str, Any]:
    """The name and value of an option: a number, a boolean, a word, words or numbers by name.

    Examples are `blocks=3`, `signed=false`, `norm=shift`, `layers=stem.0,fusion.0` and
    `patch=stem.0:2,fusion.0:4`. A list of one word ends with a comma.
    """
    name, equals, value = text.partition("=")
    if not (name and equals and value.strip(",")):
        raise PocketuneError(f"--method-option {text!r} is not of the form NAME=VALUE")
    try:
        return name, json.loads(value.lower() if value.lower() in ("true", "false") else value)
    except ValueError:
        words = [word for word in value.split(",") if word]
        if all(":" in word for word in words):
            return name, dict(map(_numbered, words))
        return name, words if "," in value else value


def _numbered(text: str) -> tuple[str, Any]:
    """A layer and its number, from `NAME:NUMBER`."""
    name, _, number = text.rpartition(":")
    return name, int(number) if number.isdecimal() else number
