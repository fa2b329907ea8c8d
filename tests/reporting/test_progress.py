"""The bars of commands that take a while."""

import pytest

from pocketune.reporting.progress import busy, staged


@pytest.mark.parametrize("terminal", [True, False])
def test_what_is_done_is_shown_on_a_terminal(monkeypatch, capsys, terminal):
    monkeypatch.setenv("TTY_COMPATIBLE", str(int(terminal)))
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with staged() as progress:
        progress("tracing the training step", 0.0)
        progress("comparing step 1 of 5", 0.5)
    out, err = capsys.readouterr()
    assert not out
    assert ("comparing step 1 of 5" in err) == terminal


@pytest.mark.parametrize("terminal", [True, False])
def test_what_has_no_known_length_is_shown_on_a_terminal(monkeypatch, capsys, terminal):
    monkeypatch.setenv("TTY_COMPATIBLE", str(int(terminal)))
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with busy("computing the table"):
        pass
    out, err = capsys.readouterr()
    assert not out
    assert ("computing the table" in err) == terminal
