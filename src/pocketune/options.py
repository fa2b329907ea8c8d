"""Options that are declared once: each is a field of a dataclass, with its help and its range.

Python users pass the dataclass, `check_options` validates it, and the command line derives its
options and their help from the same fields.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from pocketune.errors import PocketuneError, real_number, whole_number

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Options = TypeVar("_Options")
_KEY = "option"


@dataclass(frozen=True)
class Option:
    """Metadata of a field that a user sets.

    Attributes:
        help: One or two sentences.
        metavar: Placeholder for the value in the help.
        unset: What None means, in words.
        panel: Title of the group of options that it is listed in.
        choices: All allowed values; empty if any value is allowed.
        known: Lists the values that a shell completes, if importing them would slow the help down.
        at_least: Smallest allowed value.
        at_most: Largest allowed value.
        above: The value must be larger.
        below: The value must be smaller.
    """

    help: str
    metavar: str | None = None
    unset: str | None = None
    panel: str | None = None
    choices: tuple[str, ...] = ()
    known: Callable[[], Iterable[str]] | None = None
    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None

    def allows(self, value: Any) -> bool:
        """Whether a number is finite and in the range."""
        return (
            float("-inf") < value < float("inf")
            and (self.at_least is None or value >= self.at_least)
            and (self.at_most is None or value <= self.at_most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    @property
    def range(self) -> str:
        """The range in words."""
        limits = (
            ("at least", self.at_least),
            ("at most", self.at_most),
            ("above", self.above),
            ("below", self.below),
        )
        return " and ".join(f"{word} {limit}" for word, limit in limits if limit is not None)


@dataclass(frozen=True)
class OptionField:
    """A field of a dataclass of options.

    Attributes:
        name: The field's name.
        kinds: The types of its values, including `NoneType` if it may be None.
        default: Its default; `MISSING` if it is required.
        option: Its metadata.
    """

    name: str
    kinds: tuple[Any, ...]
    default: Any
    option: Option

    @property
    def is_required(self) -> bool:
        """Whether it has no default."""
        return self.default is MISSING

    @property
    def default_text(self) -> str | None:
        """The default in words; None if there is none to show."""
        if self.default is None:
            return self.option.unset
        if self.is_required or self.default is False:
            return None
        return f"{self.default:g}" if isinstance(self.default, float) else str(self.default)

    def clean(self, value: Any) -> Any:
        """A number as Python's own int or float, a path as a text, everything else as it is.

        Raises:
            PocketuneError: The value is of another kind, or outside of its range.
        """
        if self.option.choices and value not in self.option.choices:
            known = ", ".join(self.option.choices)
            raise PocketuneError(f"unknown {self.name} {value!r}: choose one of {known}")
        kinds = [kind for kind in self.kinds if kind is not NoneType]
        if kinds == [str]:
            return _text(self.name, value)
        if kinds == [bool] and not isinstance(value, bool):
            raise PocketuneError(f"{self.name} must be True or False, not {value!r}")
        if kinds not in ([int], [float]):
            return value
        number = _number(self.name, value, whole=kinds == [int])
        if not self.option.allows(number):
            raise PocketuneError(
                f"{self.name} must be {self.option.range or 'finite'}, not {value!r}"
            )
        return number


def option(help: str, *, default: Any = MISSING, kind: type[Option] = Option, **facts: Any) -> Any:
    """A field of a dataclass of options; `facts` are attributes of its `Option`."""
    return field(default=default, metadata={_KEY: kind(help, **facts)})


def flag(name: str) -> str:
    """An option's name on the command line, such as `--val-fraction` for `val_fraction`."""
    return f"--{name.replace('_', '-')}"


def option_fields(options: type) -> tuple[OptionField, ...]:
    """The options of a dataclass, in order."""
    hints = get_type_hints(options)
    return tuple(
        OptionField(each.name, _kinds(hints[each.name]), each.default, each.metadata[_KEY])
        for each in fields(options)
        if _KEY in each.metadata
    )


def check_options(options: Any) -> None:
    """Validate the values of a frozen dataclass of options, from its `__post_init__`.

    Numbers of other libraries become Python numbers, which can be stored as JSON.

    Raises:
        PocketuneError: A value is of the wrong type or out of range; the message names it.
    """
    for each in option_fields(options.__class__):
        value = getattr(options, each.name)
        if value is not None or NoneType not in each.kinds:
            object.__setattr__(options, each.name, each.clean(value))


def with_options(options: _Options, values: Mapping[str, Any]) -> _Options:
    """A dataclass of options with other values for some of its fields.

    Raises:
        TypeError: There is no such option; the message lists all.
        PocketuneError: A value is of the wrong type or out of range.
    """
    known = [each.name for each in option_fields(type(options))]
    if unknown := [name for name in values if name not in known]:
        close = get_close_matches(unknown[0], known, n=1)
        asked = f"did you mean {close[0]}? The" if close else "the"
        raise TypeError(f"unknown option {unknown[0]!r}: {asked} options are {', '.join(known)}")
    return replace(options, **values)  # type: ignore[type-var]


def takes_options(options: type) -> Callable[[_Function], _Function]:
    """Show the fields of a dataclass as keywords of a function that takes them as `**options`.

    `help`, notebooks and editors then list each with its default and its description.
    """

    def decorate(function: _Function) -> _Function:
        own = inspect.signature(function)
        mine = own.parameters.values()
        named = [each for each in mine if each.kind is not inspect.Parameter.VAR_KEYWORD]
        theirs = [
            each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for each in inspect.signature(options).parameters.values()
        ]
        shown = own.replace(parameters=named + theirs)
        function.__signature__ = shown  # type: ignore[attr-defined]
        function.__doc__ = f"{inspect.getdoc(function)}\n\nOptions:\n" + "\n".join(_lines(options))
        return function

    return decorate


def documented(options: type[_Options]) -> type[_Options]:
    """Add the options of a dataclass to its docstring."""
    options.__doc__ = f"{inspect.getdoc(options)}\n\nOptions:\n" + "\n".join(_lines(options))
    return options


def _lines(options: type) -> Iterator[str]:
    for each in option_fields(options):
        default = f" Default: {each.default_text}." if each.default_text else ""
        choices = f" One of {', '.join(each.option.choices)}." if each.option.choices else ""
        yield f"    {each.name}: {each.option.help}{choices}{default}"


def _kinds(hint: Any) -> tuple[Any, ...]:
    """`int | None` as `(int, NoneType)`; `list[str]` stays whole."""
    return (hint,) if get_origin(hint) is list else get_args(hint) or (hint,)


def _text(name: str, value: Any) -> str:
    """A text, or a path as one."""
    if isinstance(value, Path):
        return str(value)
    if not isinstance(value, str):
        raise PocketuneError(f"{name} must be a text, not {value!r}")
    return value


def _number(name: str, value: Any, *, whole: bool) -> int | float:
    """Any library's number as a Python number; a boolean is not a number."""
    try:
        number = whole_number(value) if whole else real_number(value)
        if number is None:
            raise PocketuneError(f"{name} must be a {'whole ' * whole}number, not {value!r}")
        return number if whole else float(number)
    except OverflowError:
        raise PocketuneError(f"{name} must be finite, and is too large for a float") from None
