"""The bars of commands that take a while."""

import re

import pytest

from pocketune.reporting.progress import busy, expected, staged


@pytest.mark.parametrize("lines", [True, False])
@pytest.mark.parametrize("terminal", [True, False])
def test_what_is_done_is_shown_on_a_terminal_and_in_lines(monkeypatch, capsys, terminal, lines):
    monkeypatch.setenv("TTY_COMPATIBLE", str(int(terminal)))
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with staged(lines=lines) as progress:
        progress("tracing the training step", 0.0)
        progress("comparing step 1 of 5", 0.5)
    out, err = capsys.readouterr()
    assert not out
    assert ("comparing step 1 of 5" in err) == (terminal or lines)
    if not terminal:
        assert err == "tracing the training step\ncomparing step 1 of 5\n" * lines


def test_the_time_left_comes_from_the_share_that_is_over(monkeypatch, capsys):
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setattr("pocketune.reporting.progress.expected", lambda elapsed, share: 1e6)
    with staged() as progress:
        progress("tracing the training step", 0.2)
    assert re.search(r"\d+ s left", capsys.readouterr().err)


def test_what_all_takes_is_unknown_at_the_start():
    assert expected(3.0, 0.0) is None
    assert expected(3.0, 0.25) == 12.0


@pytest.mark.parametrize("terminal", [True, False])
def test_what_has_no_known_length_is_shown_on_a_terminal(monkeypatch, capsys, terminal):
    monkeypatch.setenv("TTY_COMPATIBLE", str(int(terminal)))
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with busy("computing the table"):
        pass
    out, err = capsys.readouterr()
    assert not out
    assert ("computing the table" in err) == terminal
