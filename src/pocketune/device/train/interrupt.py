"""Stop a run between two steps when the user or the system asks for it."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any

from pocketune.errors import PocketuneError, Remedy

if TYPE_CHECKING:
    from types import FrameType, TracebackType


class Interrupted(PocketuneError):  # noqa: N818 - the name says what happened
    """The run was stopped by the user or the system, and saved.

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
    """SIGTERM, and SIGHUP (the terminal was closed) unless the platform lacks or ignores it."""
    signals = [signal.SIGTERM]
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is not None and signal.getsignal(hangup) is not signal.SIG_IGN:
        signals.append(hangup)
    return signals


class StopRequest:
    """Turns the first Ctrl-C, SIGTERM or SIGHUP in the context into a flag.

    A ``KeyboardInterrupt`` may come in the middle of an update, when only some of the parameters
    have been updated; the flag is read between steps. A second Ctrl-C interrupts immediately, as
    usual. A SIGHUP that ``nohup`` ignores is still ignored.
    """

    def __init__(self) -> None:
        self.requested = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        # Only the main thread may set handlers; another thread keeps the caller's handlers.
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
