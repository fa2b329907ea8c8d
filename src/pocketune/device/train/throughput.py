"""How fast steps are made."""

from __future__ import annotations

import time


class Pace:
    """A running mean of the seconds a step takes, which forgets half within seven steps.

    Args:
        batch: Images of a step.
    """

    def __init__(self, batch: int) -> None:
        self.seconds = 0.0
        self._batch = batch
        self._last = time.monotonic()

    @property
    def rate(self) -> float:
        """Images a second; 0 before the first step."""
        return self._batch / self.seconds if self.seconds else 0.0

    def restart(self) -> None:
        """Leave out the time since the last step, which was spent on other things."""
        self._last = time.monotonic()

    def tick(self) -> None:
        """A step was made."""
        now = time.monotonic()
        taken, self._last = now - self._last, now
        self.seconds = 0.9 * self.seconds + 0.1 * taken if self.seconds else taken
