"""`pocketune export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pocketune.cli.command import command
from pocketune.cli.options import ModelArgument, written
from pocketune.cli.predict import note_untrained
from pocketune.errors import PocketuneError, author_half
from pocketune.options import option

if TYPE_CHECKING:
    from pocketune.device import Model


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """The output."""

    out: Path | None = option(
        "File to write; a name that ends in .tflite stands for --tflite.",
        default=None,
        metavar="FILE",
        unset="model.onnx; with --tflite, model.tflite",
    )
    output: str = option(
        "What the file computes; [bold]classes[/bold] is the class of each pixel, for models "
        "trained on masks.",
        default="logits",
        choices=("logits", "classes"),
    )
    int8: bool = option(
        "8-bit integers for weights and activations, calibrated on photos.", default=False
    )
    fp16: bool = option("16-bit floats for weights and operators.", default=False)
    tflite: bool = option(
        "A TensorFlow Lite file, which takes one image at a time; 8-bit integers, unless "
        "--float32 is given.",
        default=False,
    )
    float32: bool = option("32-bit floats, as without --tflite.", default=False)
    photos: str | Path | None = option(
        "Photos to calibrate integers on, and to compare the predictions on.",
        default=None,
        metavar="PHOTOS",
        unset="the run's own",
    )

    @property
    def precision(self) -> str:
        """The precision that is asked for."""
        asked = [name for name in ("int8", "fp16", "float32") if getattr(self, name)]
        if len(asked) > 1:
            raise PocketuneError(f"--{asked[0]} and --{asked[1]} exclude each other: choose one")
        if self.for_tflite and self.fp16:
            raise PocketuneError("--tflite is not possible with --fp16: choose --float32 or --int8")
        return asked[0] if asked else "int8" if self.for_tflite else "float32"

    @property
    def for_tflite(self) -> bool:
        """Whether a TensorFlow Lite file is asked for, by the option or by the file's name."""
        suffix = "" if self.out is None else self.out.suffix.lower()
        if self.tflite and suffix == ".onnx":
            raise PocketuneError(
                f"--tflite writes a TensorFlow Lite file, and the name {self.out} is that of an "
                "ONNX file: leave out --tflite, or choose a name that ends in .tflite"
            )
        return self.tflite or suffix == ".tflite"

    @property
    def file(self) -> Path:
        """The file to write."""
        return self.out or Path("model.tflite" if self.for_tflite else "model.onnx")


@command(
    "pocketune export runs/flowers --out flowers.onnx",
    "pocketune export runs/streets --output classes",
    "pocketune export runs/flowers --int8",
    "pocketune export runs/flowers --tflite --out flowers.tflite",
)
def export(model: ModelArgument, options: ExportOptions) -> None:
    """Export the trained model as a single ONNX file for any ONNX runtime, or for TensorFlow Lite.

    With --int8, --fp16 or --tflite, its predictions are compared with those of the run, and the
    result is printed; these need PyTorch's and ONNX's packages, and --tflite needs LiteRT's.
    """
    from pocketune.device import Model
    from pocketune.device import export as export_model
    from pocketune.device.memory.sizes import format_size

    precision, file, images = options.precision, options.file, "N"
    opened, verb = Model.open(model.run), written(file)
    note_untrained(model.run)
    if options.for_tflite or precision != "float32":
        print(_reduced(opened, options, precision))
        images = "1" if options.for_tflite else images
    elif options.photos is not None:
        raise PocketuneError("--photos is for --int8, --fp16 and --tflite: leave it out")
    else:
        export_model(opened, file, output=options.output)
    side, task = opened.kit.manifest.size, opened.task
    result = f"classes uint8 (N, {side}, {side})"
    if options.output == "logits":
        shape = task.output_shape(side)
        if options.for_tflite:
            shape = (*shape[1:], shape[0])
        outputs = ", ".join(map(str, (images, *shape)))
        meaning = f", whose {task.activation} is the probabilities" if task.activation else ""
        result = f"logits float32 ({outputs}){meaning}"
    taken = f"images uint8 ({images}, {side}, {side}, 3)"
    print(f"{verb} {file} ({format_size(file.stat().st_size)}): {taken} -> {result}")


def _reduced(model: Model, options: ExportOptions, precision: str) -> str:
    """Export in fewer bits or for TensorFlow Lite; what is lost, in words."""
    if options.output != "logits":
        chosen = "tflite" if options.for_tflite else precision
        raise PocketuneError(
            f"--output {options.output} is not possible with --{chosen}: leave out "
            f"--{chosen} for a float32 file of classes, or --output for logits, of which the "
            "largest is the class"
        )
    with author_half("an export for TensorFlow Lite" if options.for_tflite else f"--{precision}"):
        from pocketune.deployment import export_reduced, export_tflite
    from pocketune.device.memory.sizes import format_size
    from pocketune.reporting.progress import staged

    with staged() as progress:
        made = (export_tflite if options.for_tflite else export_reduced)(
            model, options.file, precision=precision, photos=options.photos, progress=progress
        )
    told = "there are no photos to compare it on; name some with --photos"
    if made.agreement is not None:
        told = str(made.agreement)
        if made.on_training:
            told += " (on training photos, as there are no others)"
    if made.float_layers:
        told += f"; {made.float_layers} of {made.layers} layers stay in float32"
    if made.path.stat().st_size > made.float_size:
        told += (
            f"; the file is larger than the ONNX file without these options "
            f"({format_size(made.float_size)})"
        )
    return f"{precision}: {told}"
