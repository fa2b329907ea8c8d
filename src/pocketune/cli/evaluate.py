"""`pocketune evaluate`."""

from __future__ import annotations

import json
import os
import shlex
import sys
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pocketune.cli.command import command
from pocketune.cli.errors import print_error, print_skipped
from pocketune.cli.options import JsonOption, ModelArgument, RunMaskReading, argument
from pocketune.cli.predict import MemoryOptions, WindowOptions, is_bundled, note_untrained
from pocketune.errors import PocketuneError
from pocketune.options import option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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

    if is_bundled(model.run):
        raise PocketuneError(
            f"{model.run} knows no classes before it is trained: evaluate a run of it, which "
            f"pocketune train PHOTOS --kit {model.run} makes"
        )
    note_untrained(model.run)
    _check_tables(model.run, options)
    try:
        with _counting("evaluating") as after_photos:
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


def _check_tables(model: str | Path, options: EvaluateOptions) -> None:
    """Refuse tables that cannot be written, before any photo is evaluated."""
    from pocketune.device.use.replaceable import refuse_to_overwrite

    tables = [each for each in (options.confusion, options.per_class) if each is not None]
    for each in tables:
        refuse_to_overwrite(Path(model), each)
        _check_table(each, options.photos)
    if len({each.resolve() for each in tables}) < len(tables):
        raise PocketuneError("--confusion and --per-class name the same file: choose two")
    if tables:
        _check_figures(model, options)


def _check_figures(model: str | Path, options: EvaluateOptions) -> None:
    """Refuse tables that the model has no figures for."""
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
def _counting(purpose: str) -> Iterator[Callable[[int, int], None]]:
    """Show on a terminal how many photos are done; what is yielded takes that and all photos."""
    from pocketune.device.train.display import LiveLine

    if not sys.stderr.isatty():
        yield lambda _done, _all: None
        return
    with closing(LiveLine(sys.stderr)) as shown:
        yield shown.counting(purpose)
