"""The method that a command line names, with its options."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pocketune.cli.author import author_half
from pocketune.errors import PocketuneError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pocketune.methods import Method


def parse_method(
    method: str, blocks: int | None, method_option: Iterable[str] | None, **step: int
) -> Method:
    """One method, or the sum of several.

    Args:
        method: a method's name, or several with ``+`` between them.
        blocks: short for the option ``blocks=...``.
        method_option: each ``NAME=VALUE``; in a sum, for all methods that have an option of that
            name.
        step: ``batch`` and ``size`` of the images, for methods that measure with them.

    Raises:
        PocketuneError: there is no such method, or none of them has such an option.
    """
    with author_half("a method"):
        from pocketune.methods import Sum, create_method, method_to_dict

    knobs = dict(_parse_option(option) for option in method_option or ())
    if blocks is not None:
        knobs["blocks"] = blocks
    terms, unknown = [], set(knobs)
    several = "+" in method
    for name in method.split("+"):
        known = method_to_dict(create_method(name)).keys()
        given = {k: v for k, v in knobs.items() if k in known or not several}
        terms.append(create_method(name, **{k: v for k, v in step.items() if k in known} | given))
        unknown -= known
    if several and unknown:
        raise PocketuneError(f"none of the methods {method} has the option {min(unknown)}")
    return Sum(tuple(terms)) if several else terms[0]


def _parse_option(text: str) -> tuple[str, Any]:
    """``blocks=3``, ``signed=false`` and ``norm=shift`` are a number, a truth value, a word.

    ``layers=stem.0,head.0`` is a list of two words; one of one has a comma at its end.
    """
    name, equals, value = text.partition("=")
    if not (name and equals and value.strip(",")):
        raise PocketuneError(f"--method-option {text!r} is not of the form NAME=VALUE")
    try:
        return name, json.loads(value.lower() if value.lower() in ("true", "false") else value)
    except ValueError:
        words = [word for word in value.split(",") if word]
        return name, words if "," in value else value
