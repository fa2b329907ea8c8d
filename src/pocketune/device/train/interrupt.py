"""Stop a run between two steps when the user or the system asks for it."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any

from pocketune.device.train.progress import Progress
from pocketune.errors import PocketuneError, Remedy
from pocketune.processes.signals import ending_signals

if TYPE_CHECKING:
    from types import FrameType, TracebackType

    from pocketune.device.train.progress import PhotosReport


class Interrupted(PocketuneError):  # noqa: N818 - the name says what happened
    """The run was stopped by the user or the system, and saved.

    Attributes:
        run: The run folder.
        number: The signal that stopped it; that of Ctrl-C for a program's request.
        resumable: Whether `resume` can go on with the run; not if it is complete, or was stopped
            before its first checkpoint.
        remedy: How to go on; None for a complete run.
    """

    def __init__(
        self, message: str, run: str, number: int = signal.SIGINT, *, complete: bool = False
    ) -> None:
        self.run = run
        self.number = number
        self.resumable = not complete
        super().__init__(message, remedy=None if complete else self._remedy())

    def _remedy(self) -> Remedy:
        return Remedy("resume", "resume with: pocketune.resume({run!r})", run=self.run)


class NothingKept(Interrupted):
    """The run was stopped before its first checkpoint, and nothing of it is kept."""

    def __init__(self, run: str, number: int = signal.SIGINT) -> None:
        what = "stopped before the first checkpoint: nothing of the run is kept"
        super().__init__(what, run, number)
        self.resumable = False

    def _remedy(self) -> Remedy:
        return Remedy("start over", "call train again")


class StopRequest:
    """Turns the first Ctrl-C, SIGTERM or SIGHUP in the context into a flag, the signal's number.

    Only the main thread gets signals. A program that trains in another thread has an event instead;
    and when its main thread has ended, that counts as a SIGTERM.

    A `KeyboardInterrupt` may come in the middle of an update, when only some of the parameters
    have been updated; the flag is read between steps. A second Ctrl-C interrupts immediately, as
    usual. A second SIGTERM or SIGHUP does not: a closed terminal sends two. A SIGHUP that `nohup`
    ignores is still ignored.

    Args:
        event: The program's request; it counts as a Ctrl-C.
    """

    def __init__(self, event: threading.Event | None = None) -> None:
        self._event = event
        self._number: int | None = None
        self._previous: dict[int, Any] = {}

    @property
    def number(self) -> int | None:
        """The signal; None before there is one."""
        if self._number is not None:
            return self._number
        if self._event is not None and self._event.is_set():
            return signal.SIGINT
        return None if threading.main_thread().is_alive() else signal.SIGTERM

    def __enter__(self) -> StopRequest:
        # Only the main thread may set handlers; another thread keeps the caller's handlers.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, *ending_signals()):
                if signal.getsignal(number) is not None:  # None is of a program that embeds Python
                    self._previous[number] = signal.signal(number, self._request)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number in list(self._previous):
            self._restore(number)

    def _request(self, number: int, _frame: FrameType | None) -> None:
        if self._number is None:
            self._number = number
            self._restore(signal.SIGINT)

    def _restore(self, number: int) -> None:
        if (handler := self._previous.pop(number, None)) is not None:
            signal.signal(number, handler)


class Stoppable(Progress):
    """Shows passes over photos, and ends them with a `KeyboardInterrupt` once an event is set.

    Args:
        shown: The display of the run.
        event: The program's request to stop.
    """

    def __init__(self, shown: Progress, event: threading.Event) -> None:
        self._shown, self._event = shown, event
        self._stop_if_asked()

    def note(self, text: str) -> None:
        """Show the line."""
        self._shown.note(text)

    def photos(self, report: PhotosReport) -> None:
        """Show the count."""
        self._shown.photos(report)
        self._stop_if_asked()

    def _stop_if_asked(self) -> None:
        if self._event.is_set():
            raise KeyboardInterrupt


def stoppable(shown: Progress, event: threading.Event | None) -> Progress:
    """A display of passes over photos that the event ends, if there is one."""
    return shown if event is None else Stoppable(shown, event)
