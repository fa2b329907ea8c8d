"""`pocketune predict`."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from pocketune.cli.command import command
from pocketune.cli.errors import print_error
from pocketune.cli.options import JsonOption, argument
from pocketune.errors import PocketuneError, printable
from pocketune.options import option


@dataclass(frozen=True, kw_only=True)
class MemoryOptions:
    """The memory of a process that predicts."""

    budget: str | None = option(
        "Memory limit of the whole process, such as 96MB. What will not fit is refused.",
        default=None,
        metavar="SIZE",
        unset="no limit",
    )
    max_pixels: str | None = option(
        "Leave out photos of more pixels, such as 12MP, except ordinary JPEGs and PNGs, which are "
        "not decoded in full.",
        default=None,
        metavar="PIXELS",
        unset="33MP; fewer if they are not RGB, more if they are JPEGs",
    )


@dataclass(frozen=True, kw_only=True)
class PredictedModel:
    """The model to use; a kit may be an option instead."""

    run: str | Path | None = argument(
        "A run or a kit: a folder, or a .zip of it; or the name of a bundled kit.",
        default=None,
        metavar="RUN",
    )


@dataclass(frozen=True, kw_only=True)
class PredictOptions:
    """The images, and how many classes to show."""

    files: list[str] | None = argument(
        "Images, folders of images, or .zip files of images.", default=None, metavar="FILES..."
    )
    kit: str | None = option(
        "A kit, in place of RUN: then every argument is a file.", default=None, metavar="KIT"
    )
    delta: list[str] | None = option(
        "Predict with the values of a delta of the kit; can be repeated.",
        default=None,
        metavar="FILE",
    )
    top: int | None = option(
        "Number of classes or attributes to show per image.",
        default=None,
        metavar="N",
        unset="5 classes; attributes above 50 %",
    )
    unknown: bool = option(
        "Say [italic]none of these[/italic] for photos that resemble no class of the run.",
        default=False,
    )
    out: Path | None = option(
        "New folder for predicted masks, and for the photos with the masks laid over them.",
        default=None,
        metavar="DIR",
        unset="masks are not written",
    )


@dataclass(frozen=True, kw_only=True)
class WindowOptions:
    """How photos of any size are seen where the class of each pixel is predicted."""

    window: str = option(
        "For masks: see each photo as a whole, or through squares that slide over it.",
        default="whole",
        choices=("whole", "slide"),
    )
    overlap: float = option(
        "Share of a sliding square that the next one repeats.",
        default=0.25,
        metavar="FRACTION",
        at_least=0,
        below=1,
    )


@command(
    "pocketune predict runs/flowers new.jpg holiday/",
    "pocketune predict runs/flowers holiday/ --json \\",
    "    | jq -r 'select(.error | not) | .image'",
    "pocketune predict --kit blocks --delta flowers.safetensors \\",
    "    --delta birds.safetensors new.jpg",
    "pocketune predict runs/streets holiday/ --out masks --window slide",
)
def predict(
    model: PredictedModel,
    options: PredictOptions,
    seen: WindowOptions,
    memory: MemoryOptions,
    output: JsonOption,
) -> None:
    """Classify photos, or each of their pixels.

    With --json: one object per line for each image, {"image": name, "classes": [{"class": name,
    "probability": 0 to 1}, ...]} with the most likely class first, or {"image": name, "error":
    reason} for a file that cannot be read. For a model of attributes: {"image": name,
    "attributes": [{"attribute": name, "probability": 0 to 1, "present": above 0.5}, ...]}. For a
    model of masks: {"image": name, "classes": [{"class": name, "share": of the pixels}, ...]}. With
    --delta, there is an object for each image and delta, which also has "delta": name. With
    --unknown, each object has "unknown": whether the image resembles none of the classes, and
    "distance": that to the nearest class, where 1 is the largest that is accepted.
    """
    from pocketune.data import Skipped
    from pocketune.device import predict as predict_images

    read, (path, files) = 0, _model_and_files(model.run, options)
    deltas, unknown = options.delta or (), options.unknown
    if not deltas:
        note_untrained(path)
    found = predict_images(
        path,
        files,
        top=options.top,
        deltas=deltas,
        unknown=unknown,
        out=options.out,
        **asdict(seen),
        **asdict(memory),
    )
    for result in found:
        if isinstance(result, Skipped):
            if output.json:
                print(json.dumps({"image": result.name, "error": result.reason}))
            else:
                print_error(f"skipped {result.name}: {result.reason}")
            continue
        read += 1
        if output.json:
            print(json.dumps(result.to_dict()))
        else:
            print(f"{printable(result.name)}: {result}")
    if not read:
        raise PocketuneError("none of the files is an image that can be read")


def note_untrained(model: str | Path) -> None:
    """Say that a kit is not trained, if it is not."""
    if is_untrained(model):
        print_error(
            f"note: {model} knows no classes before it is trained: its classifier is random"
        )


def is_untrained(model: str | Path) -> bool:
    """Whether this is a kit whose classifier is random; one that cannot be opened is not."""
    from pocketune.kit.kit import Kit

    with suppress(PocketuneError):
        return is_bundled(model) or Kit.open(model, verify=False).has_new_head
    return False


def is_bundled(model: str | Path) -> bool:
    """Whether this is a bundled kit, which is not trained."""
    from pocketune.kit.bundled import bundled_kit, kit_path, list_kits

    return kit_path(model) in map(bundled_kit, list_kits())


def _model_and_files(
    run: str | Path | None, options: PredictOptions
) -> tuple[str | Path, list[str]]:
    """The model and the images; with a kit as an option, every argument is an image."""
    given = [*([] if run is None else [str(run)]), *(options.files or [])]
    if options.kit is not None:
        given = [options.kit, *given]
    if len(given) < 2:
        missing = "FILES..." if given else "RUN"
        raise click.UsageError(f"Missing argument {missing!r}.", click.get_current_context())
    return given[0], given[1:]
