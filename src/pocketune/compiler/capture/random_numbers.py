"""Random numbers of a forward pass, which the device does not draw."""

from collections.abc import Sequence
from typing import Any

from pocketune.errors import PocketuneError
from pocketune.torch_private import LightDispatchMode, is_random


class RandomNumbersError(PocketuneError):
    """An operator draws random numbers.

    Args:
        operator: The operator.
        module: The path of the module that runs it; empty where that is not known.
    """

    def __init__(self, operator: object, module: str) -> None:
        where = f"module {module!r}: " if module else ""
        super().__init__(
            f"{where}{operator} draws random numbers, which a training step cannot do; use "
            "nn.Dropout or nn.Dropout2d, whose masks the device draws, or set the rate of what is "
            "dropped to 0"
        )


class RefuseRandomNumbers(LightDispatchMode):
    """Refuses operators that draw random numbers.

    Args:
        running: The paths of the modules that run, the innermost last.
    """

    def __init__(self, running: Sequence[str]) -> None:
        super().__init__()
        self._running = running

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run an operator that draws none."""
        if is_random(func):
            raise RandomNumbersError(func, self._running[-1])
        return func(*args, **(kwargs or {}))
