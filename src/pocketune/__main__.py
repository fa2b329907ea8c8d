"""The entry point of ``pocketune`` and of ``python -m pocketune``."""

import sys


def main() -> None:
    """Run the command; Ctrl-C also stops it while it is still importing."""
    try:
        from pocketune.cli import main as run

        run()
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
