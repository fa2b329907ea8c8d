"""The entry point of `pocketune` and of `python -m pocketune`."""

import sys

from pocketune.signals import STOPPED, signal_of


def main() -> None:
    """Run the command; Ctrl-C also stops it while it is still importing."""
    try:
        from pocketune.cli import main as run

        run()
    except KeyboardInterrupt as stop:
        print("stopped", file=sys.stderr)
        sys.exit(STOPPED + signal_of(stop))


if __name__ == "__main__":
    main()
