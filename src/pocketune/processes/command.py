"""Run a pocketune command or module in a subprocess."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from pocketune.processes.signals import STOPPED, signal_of


def run_command(
    *arguments: object,
    keep_errors: bool = False,
    quiet: bool = False,
) -> tuple[int, str]:
    """Run `pocketune` with these arguments; see `run_module`."""
    return run_module("pocketune", *arguments, keep_errors=keep_errors, quiet=quiet)


def run_module(
    module: str,
    *arguments: object,
    keep_errors: bool = False,
    quiet: bool = False,
    seconds: float | None = None,
) -> tuple[int, str]:
    """Run a module with these arguments and wait for it.

    A signal that interrupts this process is passed on to the subprocess. If this process is killed,
    the subprocess gets SIGTERM, on Linux.

    Args:
        module: Name of the module.
        arguments: Command-line arguments.
        keep_errors: Return its standard error instead of showing it.
        quiet: Do not show its standard output.
        seconds: Terminate it after this time; by default never.

    Returns:
        The exit code, negative if a signal killed the subprocess; and its standard error, if kept.

    Raises:
        subprocess.TimeoutExpired: It took longer than `seconds`.
        KeyboardInterrupt: This process is interrupted.
        SystemExit: This process is interrupted, and the subprocess has said so; with its exit code.
    """
    child = [sys.executable, "-m", "pocketune.processes.child", str(os.getpid())]
    command = [*child, module, *map(str, arguments)]
    stderr = subprocess.PIPE if keep_errors else None
    stdout = subprocess.DEVNULL if quiet else None
    with subprocess.Popen(
        command,
        stdout=stdout,
        stderr=stderr,
        text=True,
        errors="replace",
        start_new_session=True,  # a Ctrl-C reaches it once, from here
    ) as process:
        try:
            errors = process.communicate(timeout=seconds)[1]
        except KeyboardInterrupt as stop:
            number = signal_of(stop)
            _pass_on(number, process)
            if keep_errors or process.returncode != STOPPED + number:
                raise
            raise SystemExit(process.returncode) from None
        except BaseException:
            _pass_on(signal.SIGTERM, process)
            raise
    return process.returncode, errors or ""


def _pass_on(number: int, process: subprocess.Popen[str]) -> None:
    """Send a signal to a process and wait for its end."""
    if os.name == "nt":  # knows no signals between processes
        process.terminate()
    else:
        process.send_signal(number)
    process.communicate()
