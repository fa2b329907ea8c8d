"""``python -m pocketune``: the commands, wherever the entry point is not on the path."""

from pocketune.cli import main

if __name__ == "__main__":
    main()
