"""The entry point of `pocketune` and of `python -m pocketune`."""

import signal
import sys
from types import FrameType

from pocketune.processes.signals import STOPPED, ending_signals, signal_of


def main() -> None:
    """Run the command; Ctrl-C, SIGTERM and SIGHUP also stop it while it is still importing."""
    try:
        for number in ending_signals():
            signal.signal(number, _stop)
        from pocketune.cli import main as run

        run()
    except KeyboardInterrupt as stop:
        print("stopped", file=sys.stderr)
        sys.exit(STOPPED + signal_of(stop))


def _stop(number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt(number)


if __name__ == "__main__":
    main()
