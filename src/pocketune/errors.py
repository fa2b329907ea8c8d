"""Errors that a user can cause and correct, and words for messages."""

import contextlib
import operator
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from numbers import Real
from pathlib import Path
from types import FrameType

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, among them those that turn the direction of writing, and half surrogates."""

_LONGEST = 2000


def printable(text: str) -> str:
    """`text` with a question mark for each character that a terminal obeys or cannot write.

    Names of files and classes may come from strangers. Python reads file names that are not UTF-8
    with half surrogates; printing them would raise.
    """
    return _UNPRINTABLE.sub("?", text)


class Remedy:
    """What the user can do about an error.

    The words here are for Python. The command line looks up its own words by the key; see
    `pocketune.cli.errors`.

    Args:
        key: Name of the remedy.
        python: What to do in Python; `{name}` stands for a value.
        values: Values by name, for either wording.
    """

    def __init__(self, key: str, python: str, **values: object) -> None:
        self.key = key
        self.python = python
        self.values = values

    def __str__(self) -> str:
        return self.python.format(**self.values)


class PocketuneError(Exception):
    """One clear sentence for the user: what is wrong, with which file or argument, and the remedy.

    It is a line of at most 2,000 characters: control characters in names become question marks, and
    values that a damaged file holds are left out in the middle.

    The commands print it as `error: <message>` and exit with 1; the Python API raises it.

    Args:
        message: What is wrong, and the remedy if Python and the command line word it alike.
        remedy: The remedy, if Python and the command line word it differently.
    """

    def __init__(self, message: str = "", *, remedy: Remedy | None = None) -> None:
        self.message = printable(message)
        if len(self.message) > _LONGEST:
            self.message = f"{self.message[: _LONGEST // 2]}...{self.message[-_LONGEST // 4 :]}"
        super().__init__(self.message)
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}; {self.remedy}" if self.remedy else self.message

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions are pickled by calling the class again with the message. A subclass takes other
        # arguments, and a pool of processes would break or wait forever for its error.
        return _unpickled, (type(self), self.args, self.__dict__)


class OutOfMemory(PocketuneError, MemoryError):  # noqa: N818 - the name says what happened
    """The system refused the memory that a computation needs."""


def _unpickled(
    kind: type[PocketuneError], args: tuple[object, ...], fields: dict[str, object]
) -> PocketuneError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


def warn(message: str) -> None:
    """Warn of what is possible and probably not meant, at the line that called the library."""
    ours = str(Path(__file__).parent), contextlib.__file__  # which calls what it decorates
    frame: FrameType | None = sys._getframe()
    level = 1
    while frame is not None and frame.f_code.co_filename.startswith(ours):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


def counted(number: int, noun: str) -> str:
    """A number of things in words.

    >>> counted(1, "step"), counted(1200, "photo")
    ('1 step', '1,200 photos')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def check_positive(**numbers: object) -> None:
    """Check that arguments are positive integers, Python's own or numpy's.

    Raises:
        PocketuneError: An argument is not a whole number of at least 1; the message names it.
    """
    for name, number in numbers.items():
        if (whole_number(number) or 0) < 1:
            raise PocketuneError(f"{name}={number!r} must be a whole number of at least 1")


def check_choice(known: Iterable[object], **values: object) -> None:
    """Check that arguments have one of the known values.

    Raises:
        PocketuneError: An argument has another value; the message names both.
    """
    choices = tuple(known)
    for name, value in values.items():
        if value not in choices:
            listed = ", ".join(map(str, choices))
            raise PocketuneError(f"{name}={value!r} must be one of {listed}")


def check_truth(**values: object) -> None:
    """Check that arguments are True or False.

    Raises:
        PocketuneError: An argument is something else; the message names it.
    """
    for name, value in values.items():
        if not isinstance(value, bool):
            raise PocketuneError(f"{name}={value!r} must be True or False")


def check_type(kind: type, **values: object) -> None:
    """Check that arguments are of a class.

    Raises:
        PocketuneError: An argument is something else; the message names both.
    """
    for name, value in values.items():
        if not isinstance(value, kind):
            raise PocketuneError(
                f"{name} is of type {type(value).__name__}; give a {kind.__name__}"
            )


def whole_number(value: object) -> int | None:
    """Any library's integer as a Python int; None for anything else, including booleans."""
    try:
        is_truth = type(value).__name__ in ("bool", "bool_")
        return None if is_truth else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def real_number(value: object) -> float | None:
    """Any library's number as a Python number; None for anything else, including booleans."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Real)):
        return None
    return value if isinstance(value, (int, float)) else float(value)


def first_line(error: Exception) -> str:
    """The first line of an error's message, which may have many; its class if there is none.

    >>> first_line(ValueError())
    'ValueError'
    """
    return next(iter(str(error).splitlines()), type(error).__name__)


@contextlib.contextmanager
def author_half(purpose: str) -> Iterator[None]:
    """Explain how to install the author half if an import in the context fails without it.

    Raises:
        PocketuneError: PyTorch or ONNX is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("torch", "onnx"):
            raise
        raise PocketuneError(
            f"{purpose} needs {error.name}, which is not installed; install it with: "
            'pip install "pocketune[author]"'
        ) from error
