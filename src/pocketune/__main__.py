"""``pocketune``, and ``python -m pocketune`` wherever the entry point is not on the path."""

import sys


def main() -> None:
    """Run the command; importing what it needs can be interrupted too."""
    try:
        from pocketune.cli import main as run

        run()
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
