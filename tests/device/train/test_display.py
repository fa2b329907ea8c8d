"""The progress display of a run."""

import io
import os
from contextlib import nullcontext
from dataclasses import replace

import pytest

from pocketune.device.train import display
from pocketune.device.train.display import (
    LiveLine,
    PlainLines,
    console,
    format_epoch,
    format_photos,
    format_refit,
    format_step,
    is_seen,
)
from pocketune.device.train.progress import (
    EpochReport,
    PhotosReport,
    RefitReport,
    Silent,
    StepReport,
    closed_on_error,
)
from pocketune.tasks import Score

STEP = StepReport(
    step=120,
    steps=1000,
    epoch=2,
    epochs=10,
    training=Score("accuracy", 0.875, loss=0.4321),
    rate=52.4,
    seconds_left=75.2,
    memory=61_400_000,
    budget=96_000_000,
)
TRAINING = Score("accuracy", 0.8, loss=0.43)
EPOCH = EpochReport(2, 10, TRAINING, Score("accuracy", 0.9, loss=0.51), best=True)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_step_in_a_line() -> None:
    assert format_step(STEP) == (
        "epoch 2/10  step 120/1000  loss 0.432  accuracy 87.5%  52 images/s  61/96 MB  1:15 left"
    )
    assert "  61 MB  " in format_step(replace(STEP, budget=None))


def test_an_epoch_in_a_line() -> None:
    text = "epoch 2/10  loss 0.430  validation loss 0.510  accuracy 90.0%"
    assert format_epoch(EPOCH) == text + "  (best)"
    assert format_epoch(replace(EPOCH, best=False)) == text
    stale = replace(EPOCH, best=False, stale=2, patience=5)
    assert format_epoch(stale) == text + "  (none better for 2 of 5 epochs)"
    assert format_epoch(replace(stale, stale=0)) == text
    without = EpochReport(2, 10, TRAINING, None, best=True)  # the last one is kept
    assert format_epoch(without) == "epoch 2/10  loss 0.430"


def test_a_classifier_computed_again_in_a_line() -> None:
    text = "classifier computed again (LDA)"
    shown = text + "  validation loss 0.510  accuracy 90.0%"
    report = RefitReport("LDA", EPOCH.validation, best=False)
    assert format_refit(report) == shown
    assert format_refit(replace(report, best=True)) == shown + "  (best)"
    assert format_refit(replace(report, validation=None)) == text


def test_photos_in_a_line() -> None:
    report = PhotosReport("classifier from the photos", 64, 600, 75.2)
    assert format_photos(report) == "classifier from the photos: 64/600  1:15 left"


def test_live_on_a_terminal_and_plain_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(console(Terminal()), LiveLine)
    assert isinstance(console(io.StringIO()), PlainLines)
    monkeypatch.setattr("sys.stdout", Terminal())
    assert isinstance(console(), LiveLine)


def test_the_live_line_is_written_over_and_epochs_stay() -> None:
    stream = Terminal()
    line = LiveLine(stream)
    line.step(STEP)
    line.epoch(EPOCH)
    line.close()
    first, second = stream.getvalue().split("\r")[1:]
    assert first == format_step(STEP)[:79]
    assert second == format_epoch(EPOCH).ljust(len(first)) + "\n"


def test_the_live_line_ends_at_its_latest_text() -> None:
    stream = Terminal()
    line = LiveLine(stream)
    for done in (8, 16, 71):  # of 76, 5 of which cannot be decoded
        line.photos(PhotosReport("classifier from the photos", done, 76, 0.0))
    line.close()
    assert stream.getvalue().split("\r")[-1] == "classifier from the photos: 71/76  0:00 left\n"


def test_the_live_line_never_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    stream = Terminal()
    LiveLine(stream).step(STEP)
    assert len(stream.getvalue().lstrip("\r")) == 29


def test_the_line_of_an_epoch_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    stream = Terminal()
    LiveLine(stream).epoch(EPOCH)
    assert stream.getvalue() == f"\r{format_epoch(EPOCH)}\n"


@pytest.mark.parametrize("kind", [LiveLine, PlainLines])
def test_a_run_goes_on_where_nobody_reads(kind: type[LiveLine | PlainLines]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    told = kind(io.TextIOWrapper(io.FileIO(writer, "w")))
    told.step(STEP)
    told.epoch(EPOCH)
    told.close()


def test_the_live_line_shows_the_last_step_however_fast() -> None:
    stream = Terminal()
    line = LiveLine(stream)
    for step in range(1, 6):
        line.step(replace(STEP, step=step, steps=5))
    line.close()
    assert "step 5/5" in stream.getvalue()
    assert stream.getvalue().endswith("\n")


def test_plain_lines_hold_back(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(display.time, "monotonic", lambda: now)
    stream = io.StringIO()
    plain = PlainLines(stream)
    for now in range(25):
        plain.step(replace(STEP, step=now))
    plain.epoch(EPOCH)
    plain.close()
    assert [line.split("  ")[1] for line in stream.getvalue().splitlines()] == [
        "step 10/1000",
        "step 20/1000",
        "loss 0.430",
    ]
    assert "\r" not in stream.getvalue()


def test_silent(capsys: pytest.CaptureFixture[str]) -> None:
    silent = Silent()
    silent.step(STEP)
    silent.epoch(EPOCH)
    silent.close()
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (0.4, "0:00"), (59.6, "1:00"), (3599.6, "1:00:00"), (360_000, "100:00:00")],
)
def test_time_is_rounded_before_it_is_divided(seconds: float, text: str) -> None:
    assert display.format_time(seconds) == text


def test_an_epoch_without_validation_photos() -> None:
    report = replace(EPOCH, validation=None, best=False)
    assert format_epoch(report) == "epoch 2/10  loss 0.430"


def test_a_metric_is_written_as_its_task_writes_it() -> None:
    report = replace(STEP, training=Score("error", 0.25, loss=0.5, style=".3f"), budget=None)
    assert "loss 0.500  error 0.250  52 images/s  61 MB  1:15 left" in format_step(report)


def test_nothing_is_shown_without_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a service, under `pythonw`, or in a program that has closed it."""
    monkeypatch.setattr("sys.stdout", None)
    assert isinstance(console(), Silent)
    assert not is_seen()
    closed = io.StringIO()
    closed.close()
    assert isinstance(console(closed), Silent)


def test_a_stream_that_is_closed_meanwhile() -> None:
    stream = io.StringIO()
    shown = console(stream)
    stream.close()
    shown.step(STEP)
    shown.epoch(EPOCH)
    shown.close()


def test_a_stream_of_another_encoding() -> None:
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding="ascii")
    console(stream).note("photos  2 classes (жук, bee)")
    assert written.getvalue() == b"photos  2 classes (\\u0436\\u0443\\u043a, bee)\n"


def test_a_terminal_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert not is_seen()
    monkeypatch.setattr("sys.stdout", Terminal())
    assert is_seen()


@pytest.mark.parametrize("error", [None, "the mask 2"])
def test_an_error_does_not_continue_the_line(error: str | None) -> None:
    def read() -> None:
        with closed_on_error(line):
            line.counting("masks")(1, 48)
            if error is not None:
                raise ValueError(error)

    stream = Terminal()
    line = LiveLine(stream)
    with nullcontext() if error is None else pytest.raises(ValueError, match=error):
        read()
    shown = "\rmasks: 1/48  0:00 left"
    assert stream.getvalue() == (shown if error is None else f"{shown}\n")
