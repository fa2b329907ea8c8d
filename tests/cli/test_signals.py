"""Signals that end a command, and standard streams that are gone."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketune.cli.app import Commands, _open_streams, app
from pocketune.errors import PocketuneError

from .conftest import Run, command, environment

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """The handlers of the tests, and an app that nothing has stopped."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    app.stopped_by = None


def received(number: int) -> KeyboardInterrupt:
    with pytest.raises(KeyboardInterrupt) as caught:
        app.interrupt(number, None)
    return caught.value


def test_only_a_second_ctrl_c_ends_the_process_at_once() -> None:
    assert received(signal.SIGTERM).args == (signal.SIGTERM,)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    for number in (signal.SIGTERM, signal.SIGHUP):
        assert signal.getsignal(number) is signal.SIG_IGN


@pytest.mark.parametrize("number", ENDING)
def test_an_error_that_a_library_makes_of_it(
    number: signal.Signals, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def imported(*_: object) -> None:
        received(number)
        raise PocketuneError("onnxruntime cannot be loaded: initialization failed")

    monkeypatch.setattr(Commands, "resolve_command", imported)
    result = run("predict", "run", "photo.jpg")
    assert (result.exit_code, result.stderr) == (128 + number, "stopped\n")


def test_while_the_arguments_are_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Commands, "parse_args", lambda *_: received(signal.SIGTERM) and _fail())
    result = run("predict")
    assert result.exit_code == 143
    assert result.stderr.strip() == "stopped"


IMPORTING = """
import os, sys

class Signaled:
    def find_spec(self, name, *_):
        if name == "pocketune.cli.app":
            os.kill(os.getpid(), int(sys.argv[1]))

sys.meta_path.insert(0, Signaled())
from pocketune.__main__ import main
main()
"""
"""Gets a signal while it imports the commands."""


@pytest.mark.parametrize("number", ENDING)
def test_while_the_commands_are_imported(number: signal.Signals) -> None:
    code = [sys.executable, "-c", IMPORTING, str(int(number))]
    done = subprocess.run(code, capture_output=True, text=True, check=False, env=environment())
    assert (done.returncode, done.stderr) == (128 + number, "stopped\n")


def _fail() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("name", ["prepare", "plan", "compare"])
def test_a_command_that_goes_on_says_so(
    name: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.get_command(None, name), "callback", lambda **_: _fail())
    result = run(name, "photos")
    assert result.exit_code == 130
    assert result.stderr == "stopped; the same command goes on where it was\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_a_disk_that_is_full_for_the_output(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command(*arguments), stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    words = "error: the standard output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, words)


def test_streams_that_are_closed_hold_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    _open_streams()
    print("to nobody")
    print("to nobody", file=sys.stderr)
    assert sys.stdin.read() == ""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        stream.close()
