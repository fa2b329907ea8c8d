"""`pocketune kit check` and `kit show`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pocketune.cli.command import Group, command
from pocketune.cli.options import JsonOption, argument
from pocketune.cli.predict import is_untrained

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pocketune.kit import Kit
    from pocketune.kit.manifest import Manifest

kit = Group(
    "kit",
    "Build kits, check or show what is in one, or forecast what training from one takes.",
    {
        "Commands": {
            "build": "build:build",
            "check": "kit:check",
            "forecast": "forecast:forecast",
            "show": "kit:show",
        }
    },
)


@dataclass(frozen=True, kw_only=True)
class KitArgument:
    """The kit to look at."""

    kit: str | Path = argument(
        "A kit: a folder, a .zip or the name of a bundled one; or a run folder.",
        metavar="KIT",
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
