"""Run a pocketune command in a subprocess."""

from __future__ import annotations

import subprocess
import sys


def run_command(*arguments: object, keep_errors: bool = False) -> tuple[int, str]:
    """Run ``pocketune`` with these arguments and wait for it.

    The subprocess is terminated if this process is interrupted.

    Args:
        arguments: Command-line arguments.
        keep_errors: Return its standard error instead of showing it.

    Returns:
        The exit code, negative if a signal killed the subprocess; and its standard error, if kept.
    """
    command = [sys.executable, "-m", "pocketune", *map(str, arguments)]
    stderr = subprocess.PIPE if keep_errors else None
    with subprocess.Popen(command, stderr=stderr, text=True) as process:
        try:
            errors = process.communicate()[1]
        except BaseException:
            process.terminate()
            process.communicate()
            raise
    return process.returncode, errors or ""
