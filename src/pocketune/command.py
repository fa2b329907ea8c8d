"""Run a pocketune command or module in a subprocess."""

from __future__ import annotations

import subprocess
import sys


def run_command(
    *arguments: object,
    keep_errors: bool = False,
    quiet: bool = False,
    seconds: float | None = None,
) -> tuple[int, str]:
    """Run ``pocketune`` with these arguments; see :func:`run_module`."""
    return run_module(
        "pocketune", *arguments, keep_errors=keep_errors, quiet=quiet, seconds=seconds
    )


def run_module(
    module: str,
    *arguments: object,
    keep_errors: bool = False,
    quiet: bool = False,
    seconds: float | None = None,
) -> tuple[int, str]:
    """Run a module with these arguments and wait for it.

    The subprocess is terminated if this process is interrupted.

    Args:
        module: Name of the module.
        arguments: Command-line arguments.
        keep_errors: Return its standard error instead of showing it.
        quiet: Do not show its standard output.
        seconds: Terminate it after this time; by default never.

    Returns:
        The exit code, negative if a signal killed the subprocess; and its standard error, if kept.

    Raises:
        subprocess.TimeoutExpired: It took longer than ``seconds``.
    """
    command = [sys.executable, "-m", module, *map(str, arguments)]
    stderr = subprocess.PIPE if keep_errors else None
    stdout = subprocess.DEVNULL if quiet else None
    with subprocess.Popen(command, stdout=stdout, stderr=stderr, text=True) as process:
        try:
            errors = process.communicate(timeout=seconds)[1]
        except BaseException:
            process.terminate()
            process.communicate()
            raise
    return process.returncode, errors or ""
