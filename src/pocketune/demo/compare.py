"""Compute a classifier of images, then fine-tune the network below it with every default."""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pocketune.demo.digits import NAMES, unpack_digits
from pocketune.errors import PocketuneError
from pocketune.kit.bundled import bundled_kit
from pocketune.kit.kit import Kit
from pocketune.kit.names import METRICS
from pocketune.processes.command import run_command


@dataclass(frozen=True)
class Contender:
    """A bundled kit and how to train it.

    Attributes:
        kit: Its name.
        trains: What it trains, for the table.
        options: Options of `pocketune train`; everything else has its default.
    """

    kit: str
    trains: str
    options: tuple[str | int, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """The result of one training.

    Attributes:
        parameters: Number of trained values.
        accuracy: Top-1 accuracy of the result on the validation images.
        seconds: Time of the whole process, including its start.
        memory: Peak resident bytes of the process.
    """

    parameters: int
    accuracy: float
    seconds: float
    memory: int


CONTENDERS = (
    Contender("last", "classifier, computed", ("--epochs", 0)),
    Contender("blocks", "top block"),
)


def run_demo() -> None:
    """Train both contenders, each in its own process, and print how they compare.

    Everything is written to a temporary folder, which is removed at the end.

    Raises:
        PocketuneError: A training failed.
    """
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="pocketune-demo-") as name:
        folder = Path(name)
        count = unpack_digits(folder / "digits")
        console.print(
            f"{count} real images of handwritten digits in {len(NAMES)} classes, a network that "
            "was pretrained on photographs (ImageNet), and no PyTorch in any process. Everything "
            "is written to a temporary folder, which is removed at the end."
        )
        outcomes = []
        for contender in CONTENDERS:
            console.print(f"\n[bold]Training: {contender.trains}[/bold]")
            outcomes.append(train(contender, folder / "digits", folder / contender.kit))
    console.print(table(outcomes))
    console.print("now yours: pocketune train PHOTOS, a folder with one subfolder for each class")


def train(contender: Contender, photos: Path, out: Path) -> Outcome:
    """Run `pocketune train` and read its log.

    Raises:
        PocketuneError: The command failed; the message says why.
    """
    kit = bundled_kit(contender.kit)
    start = time.perf_counter()
    # Its standard error is not shown: it advises to use or resume a run that is removed here.
    code, errors = run_command(
        "train", photos, "--kit", kit, "--out", out, *contender.options, keep_errors=True
    )
    seconds = time.perf_counter() - start
    if code:
        raise PocketuneError(f"training of the {contender.trains} failed: {errors.strip() or code}")
    end = json.loads((out / METRICS).read_text().splitlines()[-1])
    parameters = Kit.open(kit).manifest.trained_parameters
    return Outcome(parameters, end["best_accuracy"], seconds, end["memory"])


def table(outcomes: list[Outcome]) -> Table:
    """One row for each contender, in order."""
    result = Table(title="\nFine-tuning on the device", title_justify="left")
    result.add_column("trained")
    for heading in ("parameters", "accuracy", "seconds", "peak memory"):
        result.add_column(heading, justify="right")
    for contender, outcome in zip(CONTENDERS, outcomes, strict=True):
        result.add_row(
            contender.trains,
            f"{outcome.parameters:,}",
            f"{outcome.accuracy:.1%}",
            f"{outcome.seconds:.0f}",
            f"{outcome.memory / 1e6:.0f} MB",
        )
    return result
