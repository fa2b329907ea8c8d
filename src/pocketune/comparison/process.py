"""Jobs in processes of their own, so that each one's memory is its own.

A job is a dataclass of plain values. Its module is run with `python -m`, and the job is the first
line of its standard input, which stays open: its end tells the process that its parent has died.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

from pocketune.errors import PocketuneError

Job = TypeVar("Job")


def run_job(module: str, job: Any) -> str | None:
    """Run a job and wait for it; on an interrupt, the process is asked to stop and to save.

    Args:
        module: The module to run.
        job: A dataclass of plain values.

    Returns:
        None, or the sentence with which it failed.
    """
    with subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=None if sys.stdout.isatty() else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,  # a Ctrl-C reaches it once, from here
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        try:
            process.stdin.write(json.dumps(asdict(job)).encode() + b"\n")
            process.stdin.flush()
            errors = process.stderr.read().decode("utf-8", "replace")
            process.wait()
        except BrokenPipeError:  # it died at once
            errors = process.stderr.read().decode("utf-8", "replace")
        except BaseException:
            process.terminate()
            process.wait()
            raise
    return _failure(process.wait(), errors)


def _failure(code: int, errors: str) -> str | None:
    if code == 0:
        return None
    if code < 0:
        name = signal.Signals(-code).name
        reason = "the system ran out of memory" if name == "SIGKILL" else "a library failed"
        return f"its process was ended by {name}: {reason}, or somebody stopped it"
    lines = [line for line in errors.splitlines() if line.strip()]
    return lines[-1] if lines else f"its process ended with code {code}"


def do_job(kind: type[Job], work: Callable[[Job], None]) -> None:
    """The main function of a job's module: read the job, do it, and exit with its code."""
    job = kind(**json.loads(sys.stdin.buffer.readline()))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        work(job)
    except PocketuneError as error:
        print(str(error), file=sys.stderr)
        sys.exit(1)


def _end_with_parent() -> None:
    """Stop as after SIGTERM, which saves a run, when the parent's end of the input is closed."""
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)
