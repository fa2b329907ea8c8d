"""``pocketune``: all commands under one name.

A command imports what it needs when it runs, because the memory of ``train`` is measured. Click
takes 1.1 MB in addition to what training imports anyway; rich is imported only for help and usage
errors.
"""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
import warnings
from typing import Any

import click

import pocketune
from pocketune.cli.command import Group
from pocketune.cli.errors import FAILED, STOPPED, message_of, print_error
from pocketune.device.train.interrupt import Interrupted, ending_signals
from pocketune.errors import PocketuneError

PANELS = {
    "Train and use": {
        "train": "train:train",
        "prepare": "prepare:prepare",
        "plan": "plan:plan",
        "predict": "use:predict",
        "evaluate": "use:evaluate",
        "compare": "compare:compare",
        "export": "use:export",
        "report": "report:report",
        "delta": "delta:delta",
        "studio": "studio:studio",
        "demo": "use:demo",
    },
    "Networks, methods and kits (need PyTorch)": {
        "prune": "prune:prune",
        "retrain": "retrain:retrain",
        "pretrain-supernet": "supernet:pretrain_supernet",
        "adapt-extractor": "extractor:adapt_extractor",
        "profile": "profile:profile",
        "networks": "lists:networks",
        "methods": "lists:methods",
        "tables": "tables:tables",
        "kit": "kit:kit",
    },
}


class Commands(Group):
    """Turns the errors that a user can cause into a line on standard error and an exit code.

    The exit code is 0 for success, 1 for an error that the line explains, 2 for a usage error and
    130 for a command that was stopped. Any other exception is a bug and shows its traceback.
    """

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that the arguments name."""
        try:
            return super().invoke(ctx)
        except Interrupted as stopped:
            print_error(message_of(stopped))
            code = STOPPED
        except PocketuneError as error:
            print_error(f"error: {message_of(error)}")
            code = FAILED
        except MemoryError:
            print_error("error: the memory that this process may take ran out; see --budget")
            code = FAILED
        except KeyboardInterrupt:
            print_error("stopped")
            code = STOPPED
        raise click.exceptions.Exit(code)

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command line and exit with its code."""
        try:
            sys.exit(super().main(*args, **{**options, "standalone_mode": False}) or 0)
        except click.UsageError as error:
            from pocketune.cli.help import usage_error

            click.echo(usage_error(error), err=True)
            sys.exit(error.exit_code)
        except click.Abort:
            print_error("stopped")
            sys.exit(STOPPED)


def _version(context: click.Context, _parameter: click.Parameter, asked: bool) -> None:
    if asked:
        click.echo(f"pocketune {pocketune.__version__}")
        context.exit()


def _show_completion(context: click.Context, _parameter: click.Parameter, asked: bool) -> None:
    if asked:
        from pocketune.cli.completion import completion_script, users_shell

        click.echo(completion_script(context.command, users_shell()))
        context.exit()


def _install_completion(context: click.Context, _parameter: click.Parameter, asked: bool) -> None:
    if asked:
        from pocketune.cli.completion import completion_script, install_completion, users_shell

        shell = users_shell()
        file = install_completion(completion_script(context.command, shell), shell)
        click.echo(f"wrote {file}; start a new {shell} to complete pocketune commands")
        context.exit()


def _flag(name: str, help: str, callback: Any) -> click.Option:
    return click.Option(
        [name], is_flag=True, is_eager=True, expose_value=False, help=help, callback=callback
    )


app = Commands(
    "pocketune",
    "Fine-tune a vision network on the device where its data lives, inside a memory budget.",
    PANELS,
    examples=(
        "pocketune demo                          see it work",
        "pocketune train photos/                 photos/ has one folder per class",
        "pocketune predict runs/photos new.jpg   what is in this photo?",
        "pocketune export runs/photos            one model.onnx for any runtime",
    ),
    params=[
        _flag("--version", "Show the version and exit.", _version),
        _flag(
            "--install-completion",
            "Install completion for your shell: bash, zsh or fish.",
            _install_completion,
        ),
        _flag("--show-completion", "Show completion for your shell, to copy it.", _show_completion),
    ],
)


def main() -> None:
    """Run the command that the process's arguments name, and exit with its code."""
    warnings.filterwarnings("ignore", module="PIL")  # warnings about unusual photos
    warnings.showwarning = _show_warning
    log = logging.getLogger("pocketune")
    log.setLevel(logging.INFO)
    log.addHandler(_Notes())
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # file names need not be valid text
            stream.reconfigure(errors="backslashreplace")
    for number in ending_signals():  # like Ctrl-C, so that temporary files are removed
        signal.signal(number, signal.default_int_handler)
    try:
        app.main(prog_name="pocketune")
    finally:
        _flush()


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Print a warning as one line, without its place in the code."""
    if issubclass(category, UserWarning):
        print_error(f"warning: {message}")


class _Notes(logging.Handler):
    """Prints the log messages of the library, such as why a layer is filtered."""

    def emit(self, record: logging.LogRecord) -> None:
        print_error(f"note: {record.getMessage()}")


def _flush() -> None:
    """Write the rest of the output, unless nobody reads it (``pocketune methods | head``)."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
