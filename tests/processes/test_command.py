"""Commands in subprocesses."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pocketune.processes.command import run_module

WAITING = """
import os, sys, time
open(sys.argv[1] + ".new", "w").write(str(os.getpid()))
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(30)
open(sys.argv[1] + ".survived", "w").close()
"""
PARENT = "import sys; from pocketune.processes.command import run_module; run_module(*sys.argv[1:])"


def test_a_module_gets_its_arguments_and_its_code_comes_back(tmp_path, monkeypatch):
    (tmp_path / "told.py").write_text("import sys; sys.exit(f'{__name__} {sys.argv[1:]}')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    code, errors = run_module("told", "a b", Path("c"), keep_errors=True)
    assert (code, errors.strip()) == (1, "__main__ ['a b', 'c']")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems cannot tell the child")
def test_a_module_ends_with_a_parent_that_is_killed(tmp_path, monkeypatch):
    (tmp_path / "waiting.py").write_text(WAITING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    told = tmp_path / "process"
    with subprocess.Popen([sys.executable, "-c", PARENT, "waiting", str(told)]) as parent:
        while not told.exists():
            assert parent.poll() is None
            time.sleep(0.01)
        parent.send_signal(signal.SIGKILL)
    child = int(told.read_text())
    while Path(f"/proc/{child}/stat").exists() and not _is_zombie(child):
        time.sleep(0.01)
    assert not told.with_name("process.survived").exists()


def _is_zombie(process):
    return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
