"""What tests of whole runs share."""

from collections.abc import Callable

from pocketune.device.train.progress import EpochReport, Silent, StepReport
from pocketune.device.train.run import TrainResult

# 10 photos a class, 2 of them to validate: 24 to train on, 6 batches of 4
PER_EPOCH = 6

Run = Callable[..., TrainResult]


class Collector(Silent):
    def __init__(self) -> None:
        self.steps: list[StepReport] = []
        self.epochs: list[EpochReport] = []
        self.closed = False

    def step(self, report: StepReport) -> None:
        self.steps.append(report)

    def epoch(self, report: EpochReport) -> None:
        self.epochs.append(report)

    def close(self) -> None:
        self.closed = True


class StopError(Exception):
    """Ends a run as a bug would."""
