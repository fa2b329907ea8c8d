"""The line that shows how far a long training is."""

import time

from pocketune.device.train.progress import PhotosReport, Progress, Silent


class StepDisplay:
    """Counts the steps of a training and shows them with the time left.

    Args:
        steps: Steps of the whole training.
        done: Those of an earlier run, which take no more time.
        progress: Shows the line; None shows nothing.
    """

    def __init__(self, steps: int, done: int, progress: Progress | None) -> None:
        self._steps, self._done, self._first = steps, done, done
        self._progress = progress or Silent()
        self._start = time.monotonic()

    def step(self, purpose: str) -> None:
        """Called after a step; `purpose` begins the line."""
        self._done += 1
        passed = time.monotonic() - self._start
        left = passed / (self._done - self._first) * (self._steps - self._done)
        self._progress.photos(PhotosReport(purpose, self._done, self._steps, left))

    def close(self) -> None:
        """End the line."""
        self._progress.close()
