"""Jobs: dataclasses of plain values, each done in a process of its own, so that its memory is too.

A job's module is run with the job as its argument, in JSON, and calls `do_job`.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

from pocketune.errors import PocketuneError
from pocketune.processes.command import run_module

Job = TypeVar("Job")


def run_job(module: str, job: Any, *, quiet: bool = False, seconds: float | None = None) -> None:
    """Run a job and wait for it; on an interrupt, the process is asked to stop and to save.

    Args:
        module: The module to run.
        job: A dataclass of plain values.
        quiet: Do not show its standard output.
        seconds: Terminate it after this time; by default never.

    Raises:
        PocketuneError: It failed; with its own sentence, if it said one.
        subprocess.TimeoutExpired: It took longer than `seconds`.
    """
    code, errors = run_module(
        module, json.dumps(asdict(job)), keep_errors=True, quiet=quiet, seconds=seconds
    )
    if code:
        raise PocketuneError(_reason(code, errors))


def _reason(code: int, errors: str) -> str:
    if code < 0:
        name = signal.Signals(-code).name
        reason = "the system ran out of memory" if name == "SIGKILL" else "a library failed"
        return f"its process was ended by {name}: {reason}, or somebody stopped it"
    lines = [line for line in errors.splitlines() if line.strip()]
    return lines[-1] if lines else f"its process ended with code {code}"


def do_job(kind: type[Job], work: Callable[[Job], None]) -> None:
    """The main function of a job's module: read the job, do it, and exit with its code."""
    job = kind(**json.loads(sys.argv[1]))
    try:
        work(job)
    except PocketuneError as error:
        sys.exit(str(error))
