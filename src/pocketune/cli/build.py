"""`pocketune kit build`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pocketune.cli.author import built
from pocketune.cli.command import command
from pocketune.cli.errors import print_error
from pocketune.cli.kit import training_memory
from pocketune.cli.method import parse_method
from pocketune.cli.options import (
    ImageOptions,
    KitStepOptions,
    MaskReading,
    MethodOptions,
    NetworkOptions,
    NetworkOrFileArgument,
    ShapeOptions,
    of_method,
    written,
)
from pocketune.errors import author_half
from pocketune.options import option
from pocketune.threads import wait_asleep

if TYPE_CHECKING:
    from pocketune.kit.manifest import Manifest


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """The output, and the photos it is built with."""

    out: Path = option("Kit to write: a folder or a .zip file.", metavar="KIT")
    photos: str | Path | None = option(
        "Labeled photos, as for train. They define the classes or attributes, calibrate 8-bit "
        "frozen layers, and restore batch norms that were folded into the weights.",
        default=None,
        metavar="PHOTOS",
    )
    classes: int | None = option(
        "Number of classes, without PHOTOS; they have numbers as names.",
        default=None,
        metavar="N",
        unset="1,000; 21 for classes of pixels; those of an .onnx file",
    )
    budget: str | None = option(
        "Refuse a kit that cannot be trained in so much memory of a process, such as "
        "[bold]96MB[/bold], before it is compiled.",
        default=None,
        metavar="SIZE",
    )
    save_network: Path | None = option(
        "Also save all weights of the network. Training with --engine torch reads those in "
        "KIT/network.safetensors.",
        default=None,
        metavar="FILE",
    )


def _tasks() -> list[str]:
    from pocketune.tasks import list_tasks

    return list_tasks()


@dataclass(frozen=True, kw_only=True)
class TaskOption:
    """The task that a kit learns."""

    task: str | None = of_method(
        "What is learned, such as [bold]classification[/bold] or [bold]attributes[/bold].",
        default=None,
        metavar="NAME",
        known=_tasks,
        unset="chosen by the photos; classification without",
    )


@command(
    "pocketune kit build mobilenet_v2 --weights imagenet --out mobilenet.zip",
    "pocketune kit build mcunet_5fps --weights mcunet.safetensors \\",
    "    --method bias --size 160 --photos photos/ --out flowers.zip",
    "pocketune kit build model.onnx --method mobiletl --photos photos/ \\",
    "    --out mine.zip",
)
def build(
    named: NetworkOrFileArgument,
    options: BuildOptions,
    created: NetworkOptions,
    images: ImageOptions,
    shape: ShapeOptions,
    method: MethodOptions,
    step: KitStepOptions,
    task: TaskOption,
    reading: MaskReading,
) -> None:
    """Compile a network's training step into a kit, for devices without PyTorch."""
    from pocketune.data import load_splits
    from pocketune.device.memory.baseline import training_baseline
    from pocketune.device.memory.sizes import format_size, parse_size
    from pocketune.device.train.settings import TrainSettings

    budget = None if options.budget is None else parse_size(options.budget)
    reading.check_photos(options.photos)
    process = training_baseline()  # before PyTorch is imported, which a training process never does
    wait_asleep()
    dataset = None
    if options.photos is not None:
        dataset = load_splits(options.photos, task=task.task, masks=reading.options).train
    with author_half("building a kit"):
        from pocketune.authoring import build_kit
        from pocketune.networks import list_networks
    from pocketune.reporting.progress import staged

    network, verb = named.network, written(options.out)
    if created.weights is None and network in list_networks():
        print_error(
            f"warning: {network} starts from random weights; choose pretrained ones with --weights"
        )
    with staged(lines=True) as progress:
        made = build_kit(
            options.out,
            network=network,
            **asdict(created),
            **asdict(images),
            **asdict(shape),
            method=parse_method(**asdict(method), batch=step.batch, size=step.size),
            **asdict(step),
            photos=dataset,
            classes=options.classes,
            save_network=options.save_network,
            task=task.task,
            check=None if budget is None else partial(_check_budget, budget, process),
            progress=progress,
        )
    optimizer = TrainSettings().optimizer
    memory = format_size(training_memory(made.manifest, process)[optimizer])
    print(built(network, step.size, step.batch, method.method))
    print(
        f"{verb} {options.out}: training takes {memory} with {optimizer} (predicted, whole "
        "process)",
        flush=True,
    )


def _check_budget(budget: int, process: int, manifest: Manifest) -> None:
    """Refuse a kit whose training does not fit a budget, with whatever optimizer.

    Raises:
        BudgetExceeded: It does not.
    """
    from pocketune.device.memory.budget import BudgetExceeded
    from pocketune.device.memory.estimate import estimate_memory
    from pocketune.device.memory.sizes import format_size

    classes = len(manifest.classes)
    least = estimate_memory(manifest, process=process, classes=classes, slots=0)
    if least.total > budget:
        raise BudgetExceeded(
            f"the budget of {format_size(budget)} is {format_size(least.total - budget)} short: "
            f"training takes at least {format_size(least.total)} ({least}); give smaller images, a "
            "smaller batch, another method or a larger budget"
        )
