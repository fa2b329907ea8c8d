"""How commands end: exit codes, and one sentence instead of a traceback."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

import typer
from typer.core import TyperGroup

from pocketune.device.train.interrupt import Interrupted
from pocketune.errors import PocketuneError

FAILED = 1
STOPPED = 130
"""As shells report a command that Ctrl-C has ended."""


class CommandGroup(TyperGroup):
    """Turns what a user can cause into a line on standard error and an exit code.

    0 is success, 1 an error that the line explains, 2 a command that was not understood, and 130
    a command that was stopped. Anything else is a bug, and shows its traceback.
    """

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the arguments name."""
        try:
            return super().invoke(ctx)
        except Interrupted as stopped:
            tell(str(stopped))
            raise typer.Exit(STOPPED) from None
        except PocketuneError as error:
            tell(f"error: {error}")
            raise typer.Exit(FAILED) from None
        except KeyboardInterrupt:
            tell("stopped")
            raise typer.Exit(STOPPED) from None


def tell(message: str) -> None:
    """Print a line to standard error."""
    with suppress(OSError):  # its terminal may be gone
        print(message, file=sys.stderr, flush=True)
