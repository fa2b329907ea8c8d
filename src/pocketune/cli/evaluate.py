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
    from pocketune.device import Evaluation
    from pocketune.device import evaluate as evaluate_photos

    result = evaluate_photos(run, photos)
    if confusion:
        if not isinstance(result, Evaluation):
            raise PocketuneError(
                "photos with attributes have no confusion matrix; leave out --confusion, and see "
                "--per-class"
            )
        result.write_confusion(confusion)
    if per_class:
        result.write_per_class(per_class)
    if as_json:
        print(json.dumps(result.to_dict()))
        return
    print(result)
    print_left_out(result.skipped)
