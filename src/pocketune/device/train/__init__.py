"""A training run: settings, loop, checkpoints and log.

The names below are imported on first use, so that settings can be read without the runtime.
"""

from typing import TYPE_CHECKING

from pocketune.lazy import lazy_names

if TYPE_CHECKING:
    from pocketune.device.train.record import RunRecord as RunRecord
    from pocketune.device.train.run import TrainResult as TrainResult
    from pocketune.device.train.run import resume as resume
    from pocketune.device.train.run import train as train
    from pocketune.device.train.settings import TrainSettings as TrainSettings

_HOMES = {
    "record": ["RunRecord"],
    "run": ["TrainResult", "resume", "train"],
    "settings": ["TrainSettings"],
}

if not TYPE_CHECKING:  # a `__getattr__` would make type checkers accept any name
    __getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
