"""``pocketune evaluate``."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pocketune.cli.kits import kit_path
from pocketune.cli.left_out import print_left_out
from pocketune.cli.options import Json, Run

if TYPE_CHECKING:
    from pocketune.device import Evaluation


def evaluate(
    run: Run,
    photos: Annotated[
        str | None,
        typer.Argument(
            metavar="[PHOTOS]",
            help="Labelled photos: a folder of class folders, a CSV or a .zip. Where they come "
            "divided, those that validate.",
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
            help="Write images, correct ones, recall and precision of each class.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure how well a model knows labelled photos.

    With --json: one object with "images", "top1", "top5", "classes" (name, images, correct,
    recall, precision), "confusion" (rows of counts) and "skipped" (image, reason).
    """
    from pocketune.device import evaluate as evaluate_photos

    result = evaluate_photos(kit_path(run), photos)
    if confusion:
        result.write_confusion(confusion)
    if per_class:
        result.write_per_class(per_class)
    if as_json:
        print(json.dumps(_values(result)))
        return
    print(f"top-1 {result.top1:.1%}, top-5 {result.top5:.1%} of {result.images} photos")
    print_left_out(result.skipped)


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
        "skipped": [{"image": s.name, "reason": s.reason} for s in result.skipped],
    }


def _known(share: float) -> float | None:
    """JSON has no nan."""
    return None if math.isnan(share) else share
