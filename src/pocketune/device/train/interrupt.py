"""Stopping between two steps when the user or the system asks to."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any

from pocketune.errors import PocketuneError, Remedy

if TYPE_CHECKING:
    from types import FrameType, TracebackType


class Interrupted(PocketuneError):  # noqa: N818 - it reads as what happened
    """The run was stopped from outside, and saved.

    Attributes:
        run: The run folder.
    """

    def __init__(self, message: str, run: str) -> None:
        super().__init__(
            message,
            remedy=Remedy("resume", "resume with: pocketune.resume({run!r})", run=run),
        )
        self.run = run


def ending_signals() -> list[signal.Signals]:
    """SIGTERM, and SIGHUP (the terminal is gone) unless the platform lacks or ignores it."""
    signals = [signal.SIGTERM]
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is not None and signal.getsignal(hangup) is not signal.SIG_IGN:
        signals.append(hangup)
    return signals


class StopRequest:
    """Turns the first Ctrl-C, SIGTERM or SIGHUP into a flag while the context lasts.

    A ``KeyboardInterrupt`` may strike in the middle of an update, when half of the parameters
    are a step ahead of the others; a flag that is read between steps cannot. A second Ctrl-C
    interrupts at once, as usual. A SIGHUP that ``nohup`` has turned off stays off.
    """

    def __init__(self) -> None:
        self.requested = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        # Only the main thread may set handlers; in another one the caller's stay in force.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, *ending_signals()):
                self._previous[number] = signal.signal(number, self._request)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._restore()

    def _request(self, _number: int, _frame: FrameType | None) -> None:
        self.requested = True
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._previous.clear()
