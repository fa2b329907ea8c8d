"""``pocketune predict``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from pocketune.cli.errors import tell
from pocketune.cli.options import Json, Run
from pocketune.errors import PocketuneError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pocketune.device import Guess


def predict(
    run: Run,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILES...",
            help="Images, folders of images, or .zip files of images.",
            show_default=False,
        ),
    ],
    top: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Number of classes or attributes to show per image.",
            show_default="5 classes; attributes above 50 %",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Classify photos.

    With --json: one object per line for each image, {"image": name, "classes": [{"class": name,
    "probability": 0 to 1}, ...]} most likely class first, or {"image": name, "error":
    reason} for a file that cannot be read. For a model of attributes: {"image": name,
    "attributes": [{"attribute": name, "probability": 0 to 1, "present": above 0.5}, ...]}.
    """
    from pocketune.data import Skipped
    from pocketune.device import predict as predict_images

    known = 0
    for result in predict_images(run, files, top=top):
        if isinstance(result, Skipped):
            if as_json:
                print(json.dumps({"image": result.name, "error": result.reason}))
            else:
                tell(f"skipped {result.name}: {result.reason}")
            continue
        known += 1
        if as_json:
            print(json.dumps(result.to_dict()))
        else:
            print(_line(result.name, result.guesses if top else result.worth_naming))
    if not known:
        raise PocketuneError("none of the files is an image that can be read")


def _line(name: str, guesses: Iterable[Guess]) -> str:
    told = ", ".join(f"{guess.label} {guess.probability:.1%}" for guess in guesses)
    return f"{name}: {told or 'none of the attributes'}"
