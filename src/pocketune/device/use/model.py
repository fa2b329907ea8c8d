"""A model that can predict: a kit with the values that a run has trained."""

from dataclasses import dataclass, replace

from pocketune.arrays import State, StrPath
from pocketune.device.train.checkpoint import Checkpoint, TrainedNetwork
from pocketune.device.use.known import Known
from pocketune.kit.kit import Kit, checked_state
from pocketune.kit.manifest import KitError, Manifest
from pocketune.kit.names import BEST, KNOWN, LAST
from pocketune.kit.packed import RunFile
from pocketune.tasks import Score, Task


@dataclass(frozen=True)
class Model:
    """A kit with trained values.

    Attributes:
        kit: The kit.
        classes: Names of the classes, in the order of the logits.
        state: Parameters and statistics by name.
        step: Optimizer steps that the values took; 0 for the values of a kit.
        score: Score on the validation photos; None if there is none.
        known: What photos of the classes look like, if a delta brings it.
        known_file: The file of that, if the values are those of a run.
    """

    kit: Kit
    classes: tuple[str, ...]
    state: State
    step: int = 0
    score: Score | None = None
    known: Known | None = None
    known_file: RunFile | None = None

    def __repr__(self) -> str:
        score = f", {self.score}" if self.score else ""
        learned = self.task.counted(len(self.classes))
        return f"<Model {self.kit.path}: {learned}, step {self.step}{score}>"

    @property
    def task(self) -> Task:
        """The kit's task, with the model's classes."""
        return replace(self.kit.manifest.task, classes=self.classes)

    @property
    def manifest(self) -> Manifest:
        """The kit's manifest, with the model's classes."""
        manifest, count = self.kit.manifest, len(self.classes)
        shapes = manifest.shapes(count)
        return replace(
            manifest,
            task=self.task,
            network={**manifest.network, "classes": count},
            parameters=tuple(replace(p, shape=shapes[p.name]) for p in manifest.parameters),
        )

    @classmethod
    def open(cls, path: StrPath) -> "Model":
        """Open the model of a run or of a kit.

        Args:
            path: A run, for its best values, or its last values if it has not been validated yet;
                or a kit, for its initial values. Each is a folder or a .zip of it.

        Raises:
            PocketuneError: The path is neither, or one of its files is damaged or of another kit.
        """
        return cls.of(Kit.open(path))

    @classmethod
    def of(cls, kit: Kit) -> "Model":
        """The model in the folder or .zip of an opened kit; see `open`."""
        best, last = kit.find(BEST), kit.find(LAST)
        if best is not None:
            return cls._trained(kit, best)
        if last is not None:
            checkpoint = Checkpoint.load(last)
            checkpoint.require_fits(kit, last)
            state = {**checkpoint.parameters, **checkpoint.statistics}
            return cls(kit, checkpoint.identity.classes, state, checkpoint.counters.step)
        return cls(kit, kit.manifest.classes, kit.state())

    @classmethod
    def _trained(cls, kit: Kit, file: RunFile) -> "Model":
        trained = TrainedNetwork.load(file)
        if trained.kit != kit.identity:
            raise KitError(f"{file} does not belong to the kit next to it")
        shapes = kit.manifest.shapes(len(trained.classes))
        state = checked_state(trained.state, shapes, str(file))
        known = kit.find(KNOWN)
        return cls(kit, trained.classes, state, trained.step, trained.score, known_file=known)


def as_model(model: Model | StrPath) -> Model:
    """The model itself, or the one at a path; see `Model.open`."""
    return model if isinstance(model, Model) else Model.open(model)
