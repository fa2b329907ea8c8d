"""From a kit to a trained model, on a machine with neither torch nor onnx.

The names below are looked up when they are first used: whoever only opens a kit never pays for
ONNX Runtime.
"""

from typing import TYPE_CHECKING

from pocketune.lazy import lazy_names

if TYPE_CHECKING:
    from pocketune.device.budget import BudgetExceeded as BudgetExceeded
    from pocketune.device.evaluation import evaluate as evaluate
    from pocketune.device.exporter import export as export
    from pocketune.device.inference import AttributePrediction as AttributePrediction
    from pocketune.device.inference import Guess as Guess
    from pocketune.device.inference import Prediction as Prediction
    from pocketune.device.inference import predict as predict
    from pocketune.device.interrupt import Interrupted as Interrupted
    from pocketune.device.kit import Kit as Kit
    from pocketune.device.loop import Diverged as Diverged
    from pocketune.device.manifest import KitError as KitError
    from pocketune.device.manifest import Manifest as Manifest
    from pocketune.device.model import Model as Model
    from pocketune.device.progress import EpochReport as EpochReport
    from pocketune.device.progress import Progress as Progress
    from pocketune.device.progress import Silent as Silent
    from pocketune.device.progress import StepReport as StepReport
    from pocketune.device.results import AttributeEvaluation as AttributeEvaluation
    from pocketune.device.results import AttributeResult as AttributeResult
    from pocketune.device.results import ClassResult as ClassResult
    from pocketune.device.results import Evaluation as Evaluation
    from pocketune.device.run import TrainResult as TrainResult
    from pocketune.device.run import resume as resume
    from pocketune.device.run import train as train

_HOMES = {
    "budget": ["BudgetExceeded"],
    "evaluation": ["evaluate"],
    "exporter": ["export"],
    "inference": ["AttributePrediction", "Guess", "Prediction", "predict"],
    "interrupt": ["Interrupted"],
    "kit": ["Kit"],
    "loop": ["Diverged"],
    "manifest": ["KitError", "Manifest"],
    "model": ["Model"],
    "progress": ["EpochReport", "Progress", "Silent", "StepReport"],
    "results": ["AttributeEvaluation", "AttributeResult", "ClassResult", "Evaluation"],
    "run": ["TrainResult", "resume", "train"],
}

if not TYPE_CHECKING:  # with a `__getattr__` every name would be right to a type checker
    __getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
