"""`pocketune predict` and `evaluate`."""

from __future__ import annotations

import json
import os
import shlex
import sys
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pocketune.cli.command import command
from pocketune.cli.errors import print_error, print_skipped
from pocketune.cli.options import JsonOption, ModelArgument, RunMaskReading, argument
from pocketune.errors import PocketuneError, printable
from pocketune.options import option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """The photos, and tables to write."""

    photos: str | Path | None = argument(
        "Labeled photos, as for train. If they have a train/val split, the validation part is "
        "used; of the run's own photos, those that it held back or that were added.",
        default=None,
        metavar="PHOTOS",
        unset="the run's own validation photos",
    )
    test: bool = option("Use only the photos of test/, which no run sees.", default=False)
    confusion: Path | None = option(
        "Write the confusion matrix: one row per class, one column per predicted class.",
        default=None,
        metavar="FILE.csv",
    )
    per_class: Path | None = option(
        "Write the number of images or pixels, recall, precision, IoU etc. of each class or "
        "attribute.",
        default=None,
        metavar="FILE.csv",
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


@command(
    "pocketune evaluate runs/flowers",
    "pocketune evaluate runs/flowers test.zip --confusion confusion.csv",
    "pocketune evaluate runs/flowers --test",
    "pocketune evaluate runs/flowers --json | jq .top1",
)
def evaluate(
    model: ModelArgument,
    options: EvaluateOptions,
    seen: WindowOptions,
    reading: RunMaskReading,
    memory: MemoryOptions,
    output: JsonOption,
) -> None:
    """Evaluate a model on labeled photos.

    With --json: one object with "images", "top1", "top5", "balanced" (mean recall of the classes),
    "classes" (class, images, correct, recall, precision), "confusion" (rows of counts; null for
    more than 1,000 classes, of which --confusion writes it) and "skipped" (image, reason). For a
    model of attributes: "images", "accuracy" (the mean), "attributes" (attribute, present,
    accuracy, recall, precision) and "skipped". For a model of masks: "images", "miou", "macc",
    "pixel_accuracy", "absent" (classes that do not occur, which the means leave out), "classes"
    (class, pixels, iou, accuracy, precision), "confusion" (pixels) and "skipped".
    """
    from pocketune.data.finding import NoClasses
    from pocketune.device import evaluate as evaluate_photos
    from pocketune.device.use.export import refuse_to_overwrite

    if is_bundled(model.run):
        raise PocketuneError(
            f"{model.run} knows no classes before it is trained: evaluate a run of it, which "
            f"pocketune train PHOTOS --kit {model.run} makes"
        )
    note_untrained(model.run)
    tables = [each for each in (options.confusion, options.per_class) if each is not None]
    for each in tables:
        refuse_to_overwrite(Path(model.run), each)
        _check_table(each, options.photos)
    if len({each.resolve() for each in tables}) < len(tables):
        raise PocketuneError("--confusion and --per-class name the same file: choose two")
    if tables:
        _check_figures(model.run, options)
    try:
        with counting("evaluating") as after_photos:
            result = evaluate_photos(
                model.run,
                options.photos,
                test=options.test,
                masks=reading.options,
                after_photos=after_photos,
                **asdict(seen),
                **asdict(memory),
            )
    except NoClasses as error:
        words = shlex.join(("pocketune", "predict", str(model.run), str(options.photos)))
        raise PocketuneError(f"{error}; photos without labels can be predicted: {words}") from error
    if output.json:
        print(json.dumps(result.to_dict()))
    else:
        print(result)
        if str(result).endswith(" more") and not options.per_class:
            print_error("note: --per-class FILE.csv writes all classes")
        print_skipped(result.skipped)
    if options.confusion:
        result.write_confusion(options.confusion)
    if options.per_class:
        result.write_per_class(options.per_class)


def _check_figures(model: str | Path, options: EvaluateOptions) -> None:
    """Refuse tables that the model has no figures for, before any photo is evaluated."""
    from pocketune.kit.kit import Kit

    nothing = Kit.open(model, verify=False).manifest.task.evaluate(())
    if options.confusion:
        nothing.require_confusions()
    if options.per_class:
        nothing.require_per_class()


def _check_table(file: Path, photos: Path | str | None) -> None:
    """Check that a table that is written replaces nothing but a table of results."""
    if photos is not None and file.resolve() == Path(photos).resolve():
        raise PocketuneError(f"{file} is the table of the photos: choose another file")
    if file.suffix.lower() != ".csv" and os.path.exists(file):  # noqa: PTH110 - it never fails
        raise PocketuneError(f"{file} exists and is not a .csv file: choose another name")


@contextmanager
def counting(purpose: str) -> Iterator[Callable[[int, int], None]]:
    """Show on a terminal how many photos are done; what is yielded takes that and all photos."""
    from pocketune.device.train.display import LiveLine

    if not sys.stderr.isatty():
        yield lambda _done, _all: None
        return
    with closing(LiveLine(sys.stderr)) as shown:
        yield shown.counting(purpose)
