"""`pocketune kit build`, `kit check` and `kit show`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pocketune.cli.author import built
from pocketune.cli.command import Group, command
from pocketune.cli.errors import print_error
from pocketune.cli.method import parse_method
from pocketune.cli.options import (
    ImageOptions,
    JsonOption,
    KitStepOptions,
    MaskReading,
    MethodOptions,
    NetworkOptions,
    NetworkOrFileArgument,
    ShapeOptions,
    argument,
    of_method,
    written,
)
from pocketune.cli.predict import is_untrained
from pocketune.errors import author_half
from pocketune.options import option
from pocketune.threads import wait_asleep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pocketune.kit import Kit
    from pocketune.kit.manifest import Manifest

kit = Group(
    "kit",
    "Build kits, check or show what is in one, or forecast what training from one takes.",
    {
        "Commands": {
            "build": "kit:build",
            "check": "kit:check",
            "forecast": "forecast:forecast",
            "show": "kit:show",
        }
    },
)


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


@dataclass(frozen=True, kw_only=True)
class KitArgument:
    """The kit to look at."""

    kit: str | Path = argument(
        "A kit: a folder, a .zip or the name of a bundled one; or a run folder.",
        metavar="KIT",
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


@command("pocketune kit show blocks", "pocketune kit show flowers.zip --json | jq .task.classes")
def show(shown: KitArgument, output: JsonOption) -> None:
    """Show what a kit trains, on which images, and how much memory training takes.

    With --json: one object, the kit's manifest (for a run, with the run's classes) plus "path",
    "trained_parameters" and "training_memory" (bytes of the whole process by optimizer).
    """
    from pocketune.device.memory.baseline import training_baseline

    opened, manifest = _open(shown.kit)
    facts: dict[str, Any] = {
        "path": str(opened.path),
        "trained_parameters": manifest.trained_parameters,
        "training_memory": training_memory(manifest, training_baseline()),
        **manifest.to_dict(),
    }
    if output.json:
        print(json.dumps(facts))
        return
    note = " (placeholders: it is not trained)" if is_untrained(shown.kit) else ""
    print("\n".join(kit_lines(facts, manifest, of_classes=note)))


@command("pocketune kit check stranger.zip")
def check(checked: KitArgument) -> None:
    """Check a kit that somebody else made: its files, its graphs, and a training step.

    Every command refuses a kit with wrong files or graphs before it computes with them. This one
    also runs a step and a prediction on random pixels.
    """
    from pocketune.device.use.check import check_kit

    for part, found in check_kit(checked.kit):
        print(f"{part:<23} {found}", flush=True)
    print("this kit can be used")


def _open(path: str | Path) -> tuple[Kit, Manifest]:
    """The kit and its manifest, without its values, which would be measured as memory."""
    from pocketune.device import Model

    model = Model.open(path)
    return model.kit, model.manifest


def training_memory(manifest: Manifest, process: int) -> dict[str, int]:
    """Bytes of the whole process by optimizer, with so many taken before training."""
    from pocketune.device.memory.estimate import estimate_memory
    from pocketune.device.train.defaults import OPTIMIZERS
    from pocketune.device.train.optimizer import state_slots
    from pocketune.device.train.settings import MOMENTUM

    classes = len(manifest.classes)
    return {
        name: estimate_memory(
            manifest, process=process, classes=classes, slots=state_slots(name, MOMENTUM)
        ).total
        for name in OPTIMIZERS
    }


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


def kit_lines(facts: dict[str, Any], manifest: Manifest, of_classes: str = "") -> list[str]:
    """A line for each of the facts about a kit, or about one that is only drafted.

    Args:
        facts: The facts.
        manifest: The kit's manifest.
        of_classes: What else there is to say of its classes.
    """
    from pocketune.device.memory.sizes import format_size
    from pocketune.kit.titles import full_title

    memory = facts["training_memory"]
    rows = {
        "kit": facts.get("path"),
        "network": full_title(facts["network"]),
        "method": full_title(facts["method"]),
        "trains": f"{facts['trained_parameters']:,} parameters",
        "frozen part": _frozen_part(manifest),
        "images": f"{manifest.size} x {manifest.size} pixels, batch {_batch(manifest)}",
        manifest.task.noun: listed(manifest.classes) + of_classes,
        "memory": ", ".join(f"{format_size(size)} with {name}" for name, size in memory.items())
        + " (predicted, whole process)",
        "step": _step_time(facts.get("step_seconds")),
        "made by": f"pocketune {facts['version']}" if "path" in facts else None,
    }
    return [f"{name:<12} {value}" for name, value in rows.items() if value is not None]


def _batch(manifest: Manifest) -> str:
    """The images of a step, and of the parts that it is computed in."""
    parts = manifest.micro_batches
    return str(manifest.batch) if parts == 1 else f"{manifest.batch} in {parts} parts"


def _step_time(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds * 1e3:.3g} ms (estimated, on this machine)"


def _frozen_part(manifest: Manifest) -> str:
    if manifest.features is None:
        return "none"
    return f"features.onnx, {manifest.quantization or 'float32'}"


def listed(classes: Sequence[str]) -> str:
    """The number of classes and the first ten."""
    return f"{len(classes):,}: {first_names(classes)}"


def first_names(classes: Sequence[str]) -> str:
    """The first ten classes."""
    return ", ".join([*classes[:10], *["..."] * (len(classes) > 10)])
