"""How commands end: exit codes, and one sentence instead of a traceback."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from pocketune.cli.errors import FAILED, STOPPED, message_of, tell
from pocketune.device.train.interrupt import Interrupted
from pocketune.errors import PocketuneError


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
            tell(message_of(stopped))
            raise typer.Exit(STOPPED) from None
        except PocketuneError as error:
            tell(f"error: {message_of(error)}")
            raise typer.Exit(FAILED) from None
        except KeyboardInterrupt:
            tell("stopped")
            raise typer.Exit(STOPPED) from None
