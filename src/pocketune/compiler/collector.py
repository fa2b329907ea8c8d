"""Python's garbage collector, which stops for seconds in all while a step is compiled."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collector() -> Iterator[None]:
    """Collect no garbage in the context, or in the function that this decorates.

    A traced step is some hundred thousand objects that live on, and the collector visits them
    again and again: a third of the time of a compilation.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
