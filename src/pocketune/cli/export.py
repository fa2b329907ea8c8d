"""``pocketune export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pocketune.cli.options import Run


def export(
    run: Run,
    out: Annotated[Path, typer.Option(metavar="FILE", help="File to write.")] = Path("model.onnx"),
) -> None:
    """Export the trained model as a single ONNX file for any ONNX runtime."""
    from pocketune.device import Model
    from pocketune.device import export as export_model
    from pocketune.device.memory.sizes import format_size

    model = Model.open(run)
    file, manifest = export_model(model, out), model.kit.manifest
    side, function = manifest.size, "sigmoid" if manifest.has_attributes else "softmax"
    print(
        f"wrote {file} ({format_size(file.stat().st_size)}): images uint8 (N, {side}, {side}, 3) "
        f"-> logits float32 (N, {len(model.classes)}), whose {function} is the probabilities"
    )
