"""The signals that end a process, and what shells make of them."""

from __future__ import annotations

import signal

STOPPED = 128
"""To this, shells add the number of the signal that ended a command: 130 for Ctrl-C."""


def ending_signals() -> list[signal.Signals]:
    """SIGTERM, and SIGHUP (the terminal was closed) unless the platform lacks or ignores it."""
    signals = [signal.SIGTERM]
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is not None and signal.getsignal(hangup) is not signal.SIG_IGN:
        signals.append(hangup)
    return signals


def signal_of(stop: KeyboardInterrupt) -> int:
    """The signal of an interrupt: its argument, which our handlers give it, or else Ctrl-C."""
    return int(stop.args[0]) if stop.args else int(signal.SIGINT)
