"""Settings for tests, with what a test does not care about filled in."""

from typing import Any

from pocketune.device.train.settings import TrainSettings

DEFAULTS: dict[str, Any] = {
    "photos": "/photos",
    "epochs": 2,
    "steps": None,
    "lr": 0.01,
    "side_lr": None,
    "optimizer": "adam",
    "momentum": 0.9,
    "weight_decay": 0.0,
    "warmup": 0,
    "clip": None,
    "budget": None,
    "seed": 0,
    "patience": None,
    "val_fraction": 0.2,
    "checkpoint_every": None,
    "checkpoint_seconds": None,
}


def make_settings(**changes: Any) -> TrainSettings:
    return TrainSettings(**{**DEFAULTS, **changes})
