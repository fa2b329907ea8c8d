"""``pocketune predict``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pocketune.cli.group import tell
from pocketune.cli.options import Json, Run
from pocketune.errors import PocketuneError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pocketune.device import Guess, Prediction


def predict(
    run: Run,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILES...", help="Images, and folders and .zips of them.", show_default=False
        ),
    ],
    top: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="How many classes, or attributes, to name for each image.",
            show_default="5 classes; the attributes above 50 %",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Tell what is on photos.

    With --json: one object a line for each image, {"image": name, "classes": [{"class": name,
    "probability": 0 to 1}, ...]} with the likeliest class first, or {"image": name, "error":
    reason} for a file that cannot be read. Of a model that tells attributes: {"image": name,
    "attributes": [{"attribute": name, "probability": 0 to 1, "present": above 0.5}, ...]}.
    """
    from pocketune.data import Skipped
    from pocketune.device import Model
    from pocketune.device import predict as predict_images

    known, model = 0, Model.open(run)
    of_attributes = model.kit.manifest.has_attributes
    for result in predict_images(model, files, top=top):
        if isinstance(result, Skipped):
            if as_json:
                print(json.dumps({"image": result.name, "error": result.reason}))
            else:
                tell(f"skipped {result.name}: {result.reason}")
            continue
        known += 1
        if of_attributes:
            values, line = _attribute_values(result), _attribute_line(result, top)
        else:
            values, line = _values(result), _line(result.name, result.guesses)
        print(json.dumps(values) if as_json else line)
    if not known:
        raise PocketuneError("none of the files is an image that can be read")


def _values(result: Prediction) -> dict[str, Any]:
    classes = [{"class": g.label, "probability": g.probability} for g in result.guesses]
    return {"image": result.name, "classes": classes}


def _attribute_values(result: Prediction) -> dict[str, Any]:
    attributes = [
        {"attribute": g.label, "probability": g.probability, "present": _is_present(g)}
        for g in result.guesses
    ]
    return {"image": result.name, "attributes": attributes}


def _attribute_line(result: Prediction, top: int | None) -> str:
    """The attributes that the image has, or as many as are asked for."""
    return _line(result.name, [g for g in result.guesses if top or _is_present(g)])


def _is_present(guess: Guess) -> bool:
    return guess.probability > 0.5


def _line(name: str, guesses: Iterable[Guess]) -> str:
    told = ", ".join(f"{guess.label} {guess.probability:.1%}" for guess in guesses)
    return f"{name}: {told or 'none of the attributes'}"
