"""Jobs in processes of their own: what each way to end is called."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from pocketune.errors import PocketuneError
from pocketune.processes.job import run_job

JOB = """
import os, signal, sys, time
from dataclasses import dataclass
from pocketune.processes.job import do_job
from pocketune.errors import PocketuneError

@dataclass(frozen=True)
class Job:
    number: int
    words: dict

def work(job):
    assert job.number == 7
    exec(job.words["code"])

if __name__ == "__main__":
    do_job(Job, work)
"""


@dataclass(frozen=True)
class Job:
    number: int
    words: dict[str, str]


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        ("pass", None),
        ("print('a note', file=sys.stderr)", None),
        ("raise PocketuneError('there are no photos')", "there are no photos"),
        ("print('a note', file=sys.stderr); raise PocketuneError('too few')", "too few"),
        ("{}['key']", "KeyError: 'key'"),
        ("os._exit(3)", "its process ended with code 3"),
        (
            "os.kill(os.getpid(), signal.SIGKILL)",
            "its process was ended by SIGKILL: the system ran out of memory, or somebody stopped "
            "it",
        ),
        (
            "os.abort()",
            "its process was ended by SIGABRT: a library failed, or somebody stopped it",
        ),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="signals as POSIX has them")
def test_how_a_job_ended(
    code: str, failure: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_job.py").write_text(JOB)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    job = Job(7, {"code": code})
    if failure is None:
        run_job("a_job", job)
    else:
        with pytest.raises(PocketuneError) as caught:
            run_job("a_job", job)
        assert str(caught.value) == failure


def test_a_module_that_does_not_exist() -> None:
    with pytest.raises(PocketuneError, match=r"No module named pocketune\.nothing"):
        run_job("pocketune.nothing", Job(7, {}))
