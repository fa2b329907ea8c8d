"""``pocketune evaluate``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from pocketune.cli.left_out import print_left_out
from pocketune.cli.options import Json, Run
from pocketune.errors import PocketuneError


def evaluate(
    run: Run,
    photos: Annotated[
        str | None,
        typer.Argument(
            metavar="[PHOTOS]",
            help="Labeled photos, as for train. If they have a train/val split, the validation "
            "part is used.",
            show_default="the run's own validation photos",
        ),
    ] = None,
    confusion: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="Write the confusion matrix: one row per class, one column per predicted class.",
            show_default=False,
        ),
    ] = None,
    per_class: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="Write the number of images, recall, precision etc. of each class or attribute.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Evaluate a model on labeled photos.

    With --json: one object with "images", "top1", "top5", "classes" (class, images, correct,
    recall, precision), "confusion" (rows of counts) and "skipped" (image, reason). For a model
    of attributes: "images", "accuracy" (the mean), "attributes" (attribute, present,
    accuracy, recall, precision) and "skipped".
    """
    from pocketune.device import Evaluation
    from pocketune.device import evaluate as evaluate_photos

    result = evaluate_photos(run, photos)
    if confusion:
        if not isinstance(result, Evaluation):
            raise PocketuneError(
                "a model of attributes has no confusion matrix: use --per-class instead of "
                "--confusion"
            )
        result.write_confusion(confusion)
    if per_class:
        result.write_per_class(per_class)
    if as_json:
        print(json.dumps(result.to_dict()))
        return
    print(result)
    print_left_out(result.skipped)
