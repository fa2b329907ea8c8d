"""`pocketune`: all commands under one name.

A command imports what it needs when it runs, because the memory of `train` is measured. Click
takes 1.1 MB in addition to what training imports anyway; rich is imported only for help and usage
errors.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import signal
import sys
import warnings
from typing import TYPE_CHECKING, Any

import click

import pocketune
from pocketune.cli.command import Group
from pocketune.cli.errors import FAILED, explained, message_of, print_error
from pocketune.device.memory.addresses import check_addresses, numpy_addresses
from pocketune.device.memory.process import NUMPY_BYTES, check_group
from pocketune.device.train.interrupt import Interrupted
from pocketune.processes.signals import STOPPED, ending_signals, signal_of

if TYPE_CHECKING:
    from types import FrameType

PANELS = {
    "Train and use": {
        "train": "train:train",
        "prepare": "prepare:prepare",
        "plan": "plan:plan",
        "predict": "predict:predict",
        "evaluate": "evaluate:evaluate",
        "compare": "compare:compare",
        "export": "export:export",
        "report": "report:report",
        "delta": "delta:delta",
        "studio": "studio:studio",
        "demo": "demo:demo",
    },
    "Networks, methods and kits (need PyTorch, except kit show and check)": {
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


_OUTPUT = (errno.EIO, errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))
"""Errors of standard output: the terminal is gone, or the disk of the file is full. Errors of other
files are sentences by the time they come here."""


class Commands(Group):
    """Turns the errors that a user can cause into a line on standard error and an exit code.

    The exit code is 0 for success, 1 for an error that the line explains, 2 for a usage error, and
    128 and the number of the signal for a command that was stopped: 130 for Ctrl-C, 143 for SIGTERM
    and 129 for a terminal that was closed. Any other exception is a bug and shows its traceback.

    Attributes:
        stopped_by: The signal that interrupted the command; None before there is one.
    """

    stopped_by: int | None = None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that the arguments name."""
        try:
            check_addresses(numpy_addresses(), "this command")
            check_group(NUMPY_BYTES, "this command")
            return super().invoke(ctx)
        except Interrupted as stopped:
            print_error(message_of(stopped))
            code = STOPPED + stopped.number
        except KeyboardInterrupt as stop:
            code = self._stopped(ctx, signal_of(stop))
        except Exception as error:
            if self.stopped_by is not None:  # a library made an error of its own of the interrupt
                code = self._stopped(ctx, self.stopped_by)
            elif (message := explained(error)) is not None:
                print_error(f"error: {message}")
                code = FAILED
            else:
                raise
        raise click.exceptions.Exit(code)

    def interrupt(self, number: int, _frame: FrameType | None) -> None:
        """The handler of signals that end a command: temporary files are removed on the way out.

        Meanwhile, a second Ctrl-C ends the process at once. A second SIGTERM or SIGHUP does
        nothing: a closed terminal sends two.
        """
        self.stopped_by = number
        for each in ending_signals():
            signal.signal(each, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        raise KeyboardInterrupt(number)

    def _stopped(self, ctx: click.Context, number: int) -> int:
        name = ctx.invoked_subcommand
        goes_on = name is not None and getattr(self._imported(name), "goes_on", False)
        print_error("stopped; the same command goes on where it was" if goes_on else "stopped")
        return STOPPED + number

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command line and exit with its code."""
        try:
            sys.exit(super().main(*args, **{**options, "standalone_mode": False}) or 0)
        except click.UsageError as error:
            from pocketune.cli.help import usage_error

            click.echo(usage_error(error), err=True)
            sys.exit(error.exit_code)
        except OSError as error:
            if error.errno not in _OUTPUT:
                raise
            print_error(f"error: the standard output cannot be written: {error.strerror}")
            sys.exit(FAILED)
        except click.Abort:  # click makes it of an interrupt
            print_error("stopped")
            sys.exit(STOPPED + (self.stopped_by or signal.SIGINT))


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
    _open_streams()
    warnings.filterwarnings("ignore", module="PIL")  # warnings about unusual photos
    warnings.showwarning = _show_warning
    log = logging.getLogger("pocketune")
    log.setLevel(logging.INFO)
    log.addHandler(_Notes())
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # file names need not be valid text
            stream.reconfigure(errors="backslashreplace")
    for number in ending_signals():
        signal.signal(number, app.interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, app.interrupt)
    try:
        app.main(prog_name="pocketune")
    except SystemExit as end:
        _flush()
        if app.stopped_by is not None:  # at once: neither threads nor exit handlers are waited for
            os._exit(int(end.code or 0))
        raise


def _open_streams() -> None:
    """Give a process that was started without standard streams some that hold nothing.

    A file that is opened later would take their numbers, and what libraries print would go there.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: PTH123, SIM115


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Print a warning as one line, without its place in the code."""
    if issubclass(category, UserWarning):
        print_error(f"warning: {message}")


class _Notes(logging.Handler):
    """Prints the log messages of the library, such as why a layer is filtered."""

    def emit(self, record: logging.LogRecord) -> None:
        print_error(f"note: {record.getMessage()}")


def _flush() -> None:
    """Write the rest of the output, unless nobody reads it (`pocketune methods | head`)."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
