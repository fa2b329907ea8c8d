"""``pocketune kit show``."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pocketune.cli.options import Json

if TYPE_CHECKING:
    from pocketune.kit import Kit
    from pocketune.kit.manifest import Manifest

_OPTIMIZERS = {"adam": 0.9, "sgd": 0.9}
"""What a run's memory is predicted for, with the momentum."""


def show(
    kit: Annotated[
        str,
        typer.Argument(
            metavar="KIT",
            help="A kit: a folder, a .zip or the name of a bundled one, blocks or last; or a run "
            "folder.",
            show_default=False,
        ),
    ],
    as_json: Json = False,
) -> None:
    """Show what a kit trains, on which images, and how much memory training takes.

    With --json: one object, the kit's manifest (for a run, with the run's classes) plus "path",
    "trained_parameters" and "training_memory" (bytes of the whole process by optimizer).
    """
    opened, manifest = _open(kit)
    facts = {
        "path": str(opened.path),
        "trained_parameters": sum(math.prod(p.shape) for p in manifest.parameters),
        "training_memory": _training_memory(opened, len(manifest.classes)),
        **asdict(manifest),
    }
    print(json.dumps(facts) if as_json else "\n".join(_lines(facts, manifest)))


def _open(path: str) -> tuple[Kit, Manifest]:
    """Without the values, which would count as memory."""
    from pocketune.device import Model

    model = Model.open(path)
    return model.kit, model.manifest


def _training_memory(kit: Kit, classes: int) -> dict[str, int]:
    # What a run has imported by the time that it looks at its own memory.
    from pocketune.device.memory.estimate import predict_memory
    from pocketune.device.memory.process import process_memory
    from pocketune.device.memory.reclaim import reclaim
    from pocketune.device.train import run  # noqa: F401
    from pocketune.device.train.optimizer import state_slots

    reclaim()
    process = process_memory().current
    return {
        name: predict_memory(
            kit, process=process, classes=classes, slots=state_slots(name, momentum)
        ).total
        for name, momentum in _OPTIMIZERS.items()
    }


def _lines(facts: dict[str, Any], manifest: Manifest) -> list[str]:
    from pocketune.device.memory.sizes import format_size

    classes, memory = facts["classes"], facts["training_memory"]
    rows = {
        "kit": facts["path"],
        "network": _described(facts["network"]),
        "method": _described(facts["method"]),
        "trains": f"{facts['trained_parameters']:,} parameters",
        "frozen part": _frozen_part(manifest),
        "images": f"{facts['size']} x {facts['size']} pixels, batch {facts['batch']}",
        "attributes" if manifest.has_attributes else "classes": (
            f"{len(classes)}: {', '.join(classes[:10])}" + ", ..." * (len(classes) > 10)
        ),
        "memory": ", ".join(f"{format_size(size)} with {name}" for name, size in memory.items())
        + " (predicted, whole process)",
        "made by": f"pocketune {facts['version']}",
    }
    return [f"{name:<12} {value}" for name, value in rows.items()]


def _frozen_part(manifest: Manifest) -> str:
    if manifest.features is None:
        return "none"
    return f"features.onnx, {manifest.quantization or 'float32'}"


_NOT_SHOWN = ("name", "classes", "hidden", "branches")


def _described(values: dict[str, Any]) -> str:
    """``{"name": "blocks", "blocks": 3}`` as ``blocks, blocks 3``."""
    rest = [f"{key} {value}" for key, value in values.items() if key not in _NOT_SHOWN]
    if values.get("hidden"):
        rest.append(f"pruned in {len(values['hidden'])} blocks")
    return ", ".join([str(values.get("name")), *rest])
