"""Train and use kits on a machine without torch and onnx.

The names below are imported on first use, so that opening a kit does not load ONNX Runtime.
"""

from typing import TYPE_CHECKING

from pocketune.lazy import lazy_names

if TYPE_CHECKING:
    from pocketune.device.memory.budget import BudgetExceeded as BudgetExceeded
    from pocketune.device.train.interrupt import Interrupted as Interrupted
    from pocketune.device.train.loop import Diverged as Diverged
    from pocketune.device.train.progress import EpochReport as EpochReport
    from pocketune.device.train.progress import Progress as Progress
    from pocketune.device.train.progress import Silent as Silent
    from pocketune.device.train.progress import StepReport as StepReport
    from pocketune.device.use.adapter import export_adapter as export_adapter
    from pocketune.device.use.delta import Delta as Delta
    from pocketune.device.use.evaluate import evaluate as evaluate
    from pocketune.device.use.export import export as export
    from pocketune.device.use.model import Model as Model
    from pocketune.device.use.predict import DeltaPrediction as DeltaPrediction
    from pocketune.device.use.predict import JudgedPrediction as JudgedPrediction
    from pocketune.device.use.predict import predict as predict
    from pocketune.device.use.predictor import Predictor as Predictor

_HOMES = {
    "memory.budget": ["BudgetExceeded"],
    "train.interrupt": ["Interrupted"],
    "train.loop": ["Diverged"],
    "train.progress": ["EpochReport", "Progress", "Silent", "StepReport"],
    "use.adapter": ["export_adapter"],
    "use.delta": ["Delta"],
    "use.evaluate": ["evaluate"],
    "use.export": ["export"],
    "use.model": ["Model"],
    "use.predict": ["DeltaPrediction", "JudgedPrediction", "predict"],
    "use.predictor": ["Predictor"],
}

if not TYPE_CHECKING:  # a `__getattr__` would make type checkers accept any name
    __getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
