"""Which models can tell photos of none of their classes, and why others cannot."""

from __future__ import annotations

from pocketune.device.train.record import RunRecord
from pocketune.device.use.known import Known, described_photos
from pocketune.device.use.model import Model
from pocketune.errors import PocketuneError, Remedy
from pocketune.kit.names import RESULT


def known_of(model: Model) -> Known:
    """The description of a model's classes.

    Raises:
        PocketuneError: There is none; the message says why.
    """
    if model.task.activation != "softmax" or model.task.dense:
        raise PocketuneError(
            f"photos of none of the {model.task.noun} cannot be told: the model does not choose "
            "one of several classes for a photo"
        )
    if model.kit.manifest.embeddings is None:
        raise PocketuneError(f"the network of {model.kit.path} has no embeddings to compare")
    known = find_known(model)
    if known is None:
        raise _not_described(model)
    return known


def find_known(model: Model) -> Known | None:
    """The description of a model's classes, if it has one."""
    return model.known or Known.load(model.known_file, model.kit.identity, model.step)


def _not_described(model: Model) -> PocketuneError:
    """The error for a model that does not describe its classes, with the reason."""
    kit, classes = model.kit, len(model.classes)
    cannot = f"{kit.path} cannot tell photos of none of its classes"
    if not kit.is_run:
        return PocketuneError(f"{cannot}: a finished run can, and a delta of one; this is a kit")
    if kit.find(RESULT) is None:
        return PocketuneError(
            f"{cannot}, because the run is not finished",
            remedy=Remedy("resume", "resume with: pocketune.resume({run!r})", run=str(kit.path)),
        )
    record = RunRecord.read(kit.path)
    if not described_photos(classes, kit.manifest.embeddings or 0):
        return PocketuneError(f"{cannot}, because {classes:,} are too many")
    causes = ["its budget was too small"] if record.settings["budget"] is not None else []
    if record.reason != "time":
        causes.append("the run was stopped")
    causes.append("its time was up")  # the record does not tell a limit that sufficed for all steps
    return PocketuneError(
        f"{cannot}, because it has not looked at them again after the last step: "
        f"{' or '.join(causes)}; train it again, with wider limits if it had any"
    )
