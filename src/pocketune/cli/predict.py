"""``pocketune predict``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pocketune.cli.group import tell
from pocketune.cli.kits import kit_path
from pocketune.cli.options import Json, Run
from pocketune.errors import PocketuneError

if TYPE_CHECKING:
    from pocketune.device import Prediction


def predict(
    run: Run,
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILES...", help="Images, and folders of them.", show_default=False),
    ],
    top: Annotated[
        int, typer.Option(metavar="N", help="How many classes to name for each image.")
    ] = 5,
    as_json: Json = False,
) -> None:
    """Tell what is on photos.

    With --json: one object a line for each image, {"image": name, "classes": [{"class": name,
    "probability": 0 to 1}, ...]} with the likeliest class first, or {"image": name, "error":
    reason} for a file that cannot be read.
    """
    from pocketune.data import Skipped
    from pocketune.device import predict as predict_images

    known = 0
    for result in predict_images(kit_path(run), files, top=top):
        if isinstance(result, Skipped):
            if as_json:
                print(json.dumps({"image": result.name, "error": result.reason}))
            else:
                tell(f"skipped {result.name}: {result.reason}")
            continue
        known += 1
        print(json.dumps(_values(result)) if as_json else _line(result))
    if not known:
        raise PocketuneError("none of the files is an image that can be read")


def _values(result: Prediction) -> dict[str, Any]:
    classes = [{"class": g.label, "probability": g.probability} for g in result.guesses]
    return {"image": result.name, "classes": classes}


def _line(result: Prediction) -> str:
    guesses = (f"{guess.label} {guess.probability:.1%}" for guess in result.guesses)
    return f"{result.name}: {', '.join(guesses)}"
