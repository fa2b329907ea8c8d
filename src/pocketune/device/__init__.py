"""From a kit to a trained model, on a machine with neither torch nor onnx.

The names below are looked up when they are first used: whoever only opens a kit never pays for
ONNX Runtime.
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
    from pocketune.device.use.evaluate import evaluate as evaluate
    from pocketune.device.use.export import export as export
    from pocketune.device.use.model import Model as Model
    from pocketune.device.use.predict import AttributePrediction as AttributePrediction
    from pocketune.device.use.predict import Guess as Guess
    from pocketune.device.use.predict import Prediction as Prediction
    from pocketune.device.use.predict import predict as predict
    from pocketune.device.use.results import AttributeEvaluation as AttributeEvaluation
    from pocketune.device.use.results import AttributeResult as AttributeResult
    from pocketune.device.use.results import ClassResult as ClassResult
    from pocketune.device.use.results import Evaluation as Evaluation

_HOMES = {
    "memory.budget": [
        "BudgetExceeded",
    ],
    "train.interrupt": [
        "Interrupted",
    ],
    "train.loop": [
        "Diverged",
    ],
    "train.progress": [
        "EpochReport",
        "Progress",
        "Silent",
        "StepReport",
    ],
    "use.evaluate": [
        "evaluate",
    ],
    "use.export": [
        "export",
    ],
    "use.model": [
        "Model",
    ],
    "use.predict": [
        "AttributePrediction",
        "Guess",
        "Prediction",
        "predict",
    ],
    "use.results": [
        "AttributeEvaluation",
        "AttributeResult",
        "ClassResult",
        "Evaluation",
    ],
}

if not TYPE_CHECKING:  # with a `__getattr__` every name would be right to a type checker
    __getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
