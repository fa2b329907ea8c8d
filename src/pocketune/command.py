"""Another of our commands, in a process that ends before this one goes on."""

from __future__ import annotations

import subprocess
import sys


def run_command(*arguments: object, keep_errors: bool = False) -> tuple[int, str]:
    """Run ``pocketune`` with these arguments and wait for it; what stops this process stops it.

    Args:
        arguments: The command's.
        keep_errors: Return what it says on standard error instead of showing it.

    Returns:
        Its exit code, below 0 where a signal has killed it; and what it said.
    """
    command = [sys.executable, "-m", "pocketune", *map(str, arguments)]
    stderr = subprocess.PIPE if keep_errors else None
    with subprocess.Popen(command, stderr=stderr, text=True) as process:
        try:
            told = process.communicate()[1]
        except BaseException:
            process.terminate()
            process.communicate()
            raise
    return process.returncode, told or ""
