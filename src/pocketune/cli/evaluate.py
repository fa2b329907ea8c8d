"""``pocketune evaluate``."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pocketune.cli.left_out import print_left_out
from pocketune.cli.options import Json, Run
from pocketune.errors import PocketuneError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pocketune.data import Skipped
    from pocketune.device import AttributeEvaluation, Evaluation


def evaluate(
    run: Run,
    photos: Annotated[
        str | None,
        typer.Argument(
            metavar="[PHOTOS]",
            help="Labelled photos: a folder of class folders, a CSV of file and label or of file "
            "and attributes, or a .zip. Where they come divided, those that validate.",
            show_default="those that the run held back",
        ),
    ] = None,
    confusion: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="Write the confusion matrix: a row for each class, a column for each guess.",
            show_default=False,
        ),
    ] = None,
    per_class: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="Write images, recall, precision and so on of each class, or attribute.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure how well a model knows labelled photos.

    With --json: one object with "images", "top1", "top5", "classes" (class, images, correct,
    recall, precision), "confusion" (rows of counts) and "skipped" (image, reason). Of a model that
    tells attributes: "images", "accuracy" (the mean), "attributes" (attribute, present,
    accuracy, recall, precision) and "skipped".
    """
    from pocketune.device import AttributeEvaluation
    from pocketune.device import evaluate as evaluate_photos

    result = evaluate_photos(run, photos)
    if confusion:
        if isinstance(result, AttributeEvaluation):
            raise PocketuneError(
                "photos with attributes have no confusion matrix; leave out --confusion, and see "
                "--per-class"
            )
        result.write_confusion(confusion)
    if per_class:
        result.write_per_class(per_class)
    if isinstance(result, AttributeEvaluation):
        told, values = _attribute_lines(result), _attribute_values(result)
    else:
        told, values = _lines(result), _values(result)
    if as_json:
        print(json.dumps(values))
        return
    print("\n".join(told))
    print_left_out(result.skipped)


def _lines(result: Evaluation) -> list[str]:
    return [f"top-1 {result.top1:.1%}, top-5 {result.top5:.1%} of {result.images} photos"]


def _attribute_lines(result: AttributeEvaluation) -> list[str]:
    count = len(result.attributes)
    width = max(map(len, result.attributes))
    return [
        f"mean accuracy {result.accuracy:.1%} of {count} attributes of {result.images} photos",
        *(f"  {a.name:<{width}}  {a.accuracy:6.1%}" for a in result.per_attribute),
    ]


def _attribute_values(result: AttributeEvaluation) -> dict[str, Any]:
    attributes = [
        {
            "attribute": a.name,
            "present": a.present,
            "accuracy": a.accuracy,
            "recall": _known(a.recall),
            "precision": _known(a.precision),
        }
        for a in result.per_attribute
    ]
    return {
        "images": result.images,
        "accuracy": result.accuracy,
        "attributes": attributes,
        "skipped": _skipped(result.skipped),
    }


def _values(result: Evaluation) -> dict[str, Any]:
    classes = [
        {
            "class": c.name,
            "images": c.images,
            "correct": c.correct,
            "recall": _known(c.recall),
            "precision": _known(c.precision),
        }
        for c in result.per_class
    ]
    return {
        "images": result.images,
        "top1": result.top1,
        "top5": result.top5,
        "classes": classes,
        "confusion": result.confusion.tolist(),
        "skipped": _skipped(result.skipped),
    }


def _skipped(files: Iterable[Skipped]) -> list[dict[str, str]]:
    return [{"image": file.name, "reason": file.reason} for file in files]


def _known(share: float) -> float | None:
    """JSON has no nan."""
    return None if math.isnan(share) else share
