"""Completion of commands and options by bash, zsh and fish."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from pocketune.errors import PocketuneError
from pocketune.files import reading, writing

VARIABLE = "_POCKETUNE_COMPLETE"
_RC_FILES = {"bash": ".bashrc", "zsh": ".zshrc"}
# A .zshrc may not have loaded zsh's completion.
_ZSH_SETUP = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }"


def completion_script(commands: click.Command, shell: str) -> str:
    """The script that a shell runs for completion.

    Raises:
        PocketuneError: The shell is not bash, zsh or fish.
    """
    found = get_completion_class(shell)
    if found is None:
        raise PocketuneError(f"there is no completion for {shell!r}: use bash, zsh or fish")
    script = found(commands, {}, "pocketune", VARIABLE).source()
    if shell == "zsh":
        tag, rest = script.split("\n", 1)  # "#compdef pocketune", which has to be the first line
        return "\n".join((tag, "", _ZSH_SETUP, rest))
    return script


def install_completion(script: str, shell: str) -> Path:
    """Write the script to a file that the shell reads when it starts.

    Returns:
        The script's file.

    Raises:
        PocketuneError: A file cannot be written.
    """
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    if shell == "fish":
        return _write(config / "fish" / "completions" / "pocketune.fish", script)
    file = _write(config / "pocketune" / f"completion.{shell}", script)
    startup, line = Path.home() / _RC_FILES[shell], f"source '{file}'"
    with reading(startup):
        lines = startup.read_text(encoding="utf-8") if startup.exists() else ""
    if line not in lines.splitlines():
        with writing(startup), startup.open("a", encoding="utf-8") as end:
            end.write(f"\n{line}\n")
    return file


def users_shell() -> str:
    """The name of the user's shell, such as `bash`."""
    return Path(os.environ.get("SHELL", "bash")).name


def _write(file: Path, script: str) -> Path:
    with writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(script, encoding="utf-8")
    return file
