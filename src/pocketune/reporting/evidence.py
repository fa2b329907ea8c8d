"""What the photos of a run show about its model."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from pocketune.device.use.evaluate import NO_OTHER
from pocketune.errors import counted, printable
from pocketune.reporting import progress
from pocketune.reporting.calibration import calibrate
from pocketune.reporting.charts.balance import balance_chart
from pocketune.reporting.charts.matrix import confusion_chart
from pocketune.reporting.charts.overlap import overlap_chart
from pocketune.reporting.charts.reliability import reliability_chart
from pocketune.reporting.charts.style import Chart
from pocketune.reporting.confusion import confused_pairs, most_confused
from pocketune.reporting.masks import mask_pictures
from pocketune.reporting.page import Photo, Picture, Section
from pocketune.reporting.photos import Predicted, predict_all, predict_by_others
from pocketune.reporting.prototypes import find_strays
from pocketune.reporting.thumbnails import thumbnail
from pocketune.tasks.results import Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from pocketune.data import ImageDataset, Splits
    from pocketune.device.use.model import Model
    from pocketune.tasks import Evaluation, Labels, Task

PHOTOS = 5_000
"""Photos of each part that are predicted; of more, as many are taken evenly."""
SHOWN = 18
"""Photos in a gallery."""
MATRIX = 20
PAIRS = 40
SKIPPED = 100
OVERLAP = "IoU"
"""The title of a column of results."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """Predictions for the photos of a run.

    Attributes:
        task: The model's task.
        splits: All photos.
        training: Predictions for training photos; None if none can be decoded.
        held: Predictions for validation photos; None if there are none.
        others: Without these, and if the classifier was computed from the training photos, what the
            one that is computed from all others predicts for each; else None. The only photo of a
            class is not among them.
        masks: Pictures of the photos in a gallery of mistakes, by their position; empty without
            masks.
    """

    task: Task
    splits: Splits
    training: Predicted | None
    held: Predicted | None
    others: Predicted | None = None
    masks: Mapping[int, tuple[Picture, ...]] = field(default_factory=dict)

    @classmethod
    def gather(cls, model: Model, splits: Splits, *, computed: bool = False) -> Evidence:
        """Predict the photos of both parts.

        Args:
            model: The model of a run.
            splits: Its photos.
            computed: Whether its classifier was computed from the training photos.
        """
        chosen = [part.thinned(PHOTOS) for part in (splits.train, splits.val)]
        with progress.counted("looking at the photos", sum(map(len, chosen))) as advance:
            embed = bool(model.task.answers(splits.train.labels[:1]).size)
            training = predict_all(model, chosen[0], embed=embed, after_batch=advance)
            held = predict_all(model, chosen[1], after_batch=advance)
        others = None
        if computed and held is None and training is not None and embed:
            others = predict_by_others(model.task, training)
        found = cls(model.task, splits, training, held, others)
        if model.task.dense and (judged := found.judged) is not None:
            masks = mask_pictures(model, judged.photos, _worst_first(judged)[:SHOWN])
            found = replace(found, masks=masks)
        return found

    @property
    def judged(self) -> Predicted | None:
        """The predictions that mistakes are looked for in: of validation photos, if there are."""
        return self.held or self.others or self.training

    @property
    def which(self) -> str:
        """What these photos are."""
        return "validation photos" if self.held else "training photos"

    @property
    def by(self) -> str:
        """What predicts them, if it is not the run's own network."""
        others = self.others is not None and not self.held
        return " by the classifier that is computed from all others" if others else ""

    @property
    def untested(self) -> int:
        """Photos that this classifier cannot know, as the only ones of their classes."""
        if self.others is None or self.training is None:
            return 0
        return len(self.training.photos) - len(self.others.photos)


def photo_sections(evidence: Evidence) -> Iterator[Section]:
    """The sections about photos, each if there is something to say."""
    if evidence.judged is not None:
        yield _mistakes(evidence, evidence.judged)
    training = evidence.others or evidence.training
    if training is not None and evidence.task.answers(training.labels).size:
        yield _hurting(evidence.task, training)
    yield from _data(evidence)


def _worst_first(judged: Predicted) -> list[int]:
    """Photos that are not predicted correctly, that with the highest loss first."""
    worst: list[int] = np.argsort(-judged.losses, kind="stable").tolist()
    marks = judged.marks
    return [i for i in worst if not (marks.dtype == np.bool_ and bool(marks[i].all()))]


def _mistakes(evidence: Evidence, judged: Predicted) -> Section:
    task, result, order = evidence.task, judged.result, _worst_first(judged)
    text = _order_in_words(evidence, judged, len(order))
    if evidence.untested:
        text += f" {counted(evidence.untested, 'photo')} {NO_OTHER}."
    tables = []
    if result.per_class_table is not None:
        tables = [(f"Results for each of the {task.noun}", _readable(result.per_class_table))]
    chosen = order[:SHOWN]
    notes = [f"loss {judged.losses[i]:.2f}" for i in chosen]
    if task.dense:
        right = [f"{judged.marks[i]:.0%} of its pixels are right" for i in chosen]
        notes = list(map("; ".join, zip(right, notes, strict=True)))
    return Section(
        title="Mistakes",
        text=(text,),
        charts=(
            *_overlaps(result),
            *_confusion(result, len(task.classes)),
            *(_confidence(judged) if evidence.held or evidence.others else ()),
        ),
        photos=tuple(_gallery(judged, chosen, notes, evidence.masks)),
        tables=tuple(tables),
    )


def _order_in_words(evidence: Evidence, judged: Predicted, wrong: int) -> str:
    if evidence.task.dense:
        return (
            "The photos with the highest loss come first. The masks have the colors of the chart; "
            "pixels that do not count are left out of the true one."
        )
    if judged.marks.dtype != np.bool_:
        return "The photos with the highest loss come first."
    if not wrong:
        return f"All {len(judged.marks):,} {evidence.which} are predicted correctly{evidence.by}."
    return (
        f"{wrong:,} of {len(judged.marks):,} {evidence.which} are predicted wrongly"
        f"{evidence.by}. Those with the highest loss come first."
    )


def _overlaps(result: Evaluation) -> Iterator[Chart]:
    table = result.per_class_table
    if table is not None and OVERLAP in table.titles:
        column = table.titles.index(OVERLAP)
        yield overlap_chart(
            [str(row[0]) for row in table.rows], [float(row[column]) for row in table.rows]
        )


def _confusion(result: Evaluation, classes: int) -> Iterator[Chart]:
    found = result.confusions
    if found is not None:
        pairs, matrix = confused_pairs(found, PAIRS), most_confused(found, MATRIX)
        yield confusion_chart(matrix, pairs, classes, result.unit)


def _readable(table: Table) -> Table:
    """Fractions as percentages; a fraction of nothing as a dash."""
    return Table(
        table.titles,
        tuple(tuple(_cell(value) for value in row) for row in table.rows),
    )


def _cell(value: str | float) -> str | int:
    if isinstance(value, float):
        return "-" if np.isnan(value) else f"{value:.1%}"
    return value


def _gallery(
    predicted: Predicted,
    chosen: Sequence[int],
    notes: Sequence[str],
    masks: Mapping[int, tuple[Picture, ...]],
) -> Iterator[Photo]:
    for index, note in zip(chosen, notes, strict=True):
        verdict = predicted.verdicts[index]
        pictures = masks.get(index, ())
        yield Photo(
            picture=None if pictures else thumbnail(predicted.photos, index),
            name=printable(predicted.photos.names[index]),
            truth=verdict.truth,
            guess=verdict.guess,
            note=note,
            masks=pictures,
        )


def _confidence(judged: Predicted) -> Iterator[Chart]:
    if judged.confidences is not None:
        yield reliability_chart(calibrate(judged.confidences, judged.marks))


def _hurting(task: Task, training: Predicted) -> Section:
    """Training photos that are predicted wrong and look like photos with another label."""
    doubt, words = _doubts(task, training)
    is_wrong = ~training.marks.reshape(len(doubt), -1).astype(bool).all(axis=1)
    doubted = (doubt > 1) & is_wrong  # most others are good photos near the border of two classes
    order = [int(i) for i in np.argsort(-training.losses, kind="stable") if doubted[i]]
    text = (
        f"{len(order):,} of {len(training.losses):,} training photos are predicted wrong, and look "
        "more like those with another label: the mean of their features is nearer than that of "
        "their own. A wrong label, a crop without its subject or a photo of two things may be the "
        "reason. Those with the highest loss come first."
        if order
        else "Each training photo is predicted right, or looks most like those with the same label."
    )
    chosen = order[:SHOWN]
    notes = [f"looks like {words[i]}; loss {training.losses[i]:.2f}" for i in chosen]
    photos = tuple(_gallery(training, chosen, notes, {}))
    return Section(title="Photos that may hurt", text=(text,), photos=photos)


def _doubts(task: Task, training: Predicted) -> tuple[NDArray[np.float64], list[str]]:
    """For each photo, the doubt in the answer that is doubted most, and what it looks like."""
    answers = task.answers(training.labels)
    most, words = np.zeros(len(answers)), [""] * len(answers)
    assert training.embeddings is not None  # asked for in `gather`
    for question in range(answers.shape[1]):
        found = find_strays(training.embeddings, answers[:, question])
        for i in np.flatnonzero(found.doubt > np.maximum(most, 1)).tolist():
            words[i] = task.answer(question, int(found.nearest[i]))
        most = np.maximum(most, found.doubt)
    return most, words


def _decoded(photos: ImageDataset, predicted: Predicted | None) -> Labels:
    """The labels of photos without those that turned out to be damaged as they were decoded."""
    lost = {file.name for file in predicted.skipped} if predicted else set()
    if not lost:
        return photos.labels
    names = enumerate(photos.names)
    return photos.subset([i for i, name in names if printable(name) not in lost]).labels


def _data(evidence: Evidence) -> Iterator[Section]:
    task, splits = evidence.task, evidence.splits
    training = task.counts(_decoded(splits.train, evidence.training))
    held = task.counts(_decoded(splits.val, evidence.held))
    later = [each.skipped for each in (evidence.training, evidence.held) if each]
    skipped = [*splits.skipped, *(file for files in later for file in files)]
    charts: tuple[Chart, ...] = ()
    if training is not None and held is not None:
        charts = (balance_chart(task.classes, training, held, task.noun),)
    if charts or skipped:
        rows = tuple((printable(file.name), file.reason) for file in skipped[:SKIPPED])
        title = f"{counted(len(skipped), 'file')} skipped"
        tables = ((title, Table(("file", "reason"), rows)),) if skipped else ()
        yield Section(title="Photos", charts=charts, tables=tables)
