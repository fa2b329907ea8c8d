"""Engines that fail or are interrupted in the middle of a run."""

import signal
from collections.abc import Callable
from typing import Any, TypeVar

from .softmax_engine import SoftmaxEngine

Result = TypeVar("Result")


def interrupt(result: Result) -> Result:
    """The user's Ctrl-C."""
    signal.raise_signal(signal.SIGINT)
    return result


def at_call(
    number: int, action: Callable[[Any], Any], function: Callable[..., Any]
) -> Callable[..., Any]:
    """The same function, except that the result of one call goes through `action`."""
    calls = 0

    def call(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        result = function(*arguments)
        return action(result) if calls == number else result

    return call


def failing(
    method: str, at: int, action: Callable[[Any], Any], engine: type = SoftmaxEngine
) -> type[Any]:
    """An engine whose `at`-th call of a method goes through `action`."""
    return type("Failing", (engine,), {method: at_call(at, action, getattr(engine, method))})
