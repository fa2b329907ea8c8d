"""Settings for tests, with what a test does not care about filled in."""

from typing import Any

from pocketune.device.train.settings import TrainSettings

DEFAULTS: dict[str, Any] = {"epochs": 2, "lr": 0.01, "checkpoint_seconds": None}


def make_settings(**changes: Any) -> TrainSettings:
    return TrainSettings(**{**DEFAULTS, **changes})
