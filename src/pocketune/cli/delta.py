"""`pocketune delta save`, `delta show` and `delta apply`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pocketune.cli.command import Group, command
from pocketune.cli.kit import KitArgument, first_names, listed
from pocketune.cli.options import JsonOption, ModelArgument, argument, written
from pocketune.errors import PocketuneError, counted
from pocketune.options import option

if TYPE_CHECKING:
    from pocketune.device import Delta

SAFETENSORS, ADAPTER = FORMATS = ("safetensors", "onnx-adapter")
_SUFFIXES = {".safetensors": SAFETENSORS, ".onnx_adapter": ADAPTER}

delta = Group(
    "delta",
    "Save what a run changed as one small file, show it, or make a kit of it.",
    {"Commands": {"save": "delta:save", "show": "delta:show", "apply": "delta:apply"}},
)


@dataclass(frozen=True, kw_only=True)
class SaveOptions:
    """The output."""

    out: Path = option("File to write.", metavar="FILE")
    format: str | None = option(
        "A delta for Pocketune, or all values as an adapter for any program with ONNX Runtime.",
        default=None,
        choices=FORMATS,
        unset=f"{SAFETENSORS}; {ADAPTER} for a FILE that ends in .onnx_adapter",
    )

    @property
    def chosen(self) -> str:
        """The format that is asked for, by the option or by the file's name."""
        named = _SUFFIXES.get(self.out.suffix.lower())
        if self.format and named and self.format != named:
            raise PocketuneError(
                f"the name {self.out} is that of the format {named}, not {self.format}: choose "
                "another name, or leave out --format"
            )
        return self.format or named or SAFETENSORS


@dataclass(frozen=True, kw_only=True)
class DeltaArgument:
    """The delta."""

    file: Path = argument("A delta, from [bold]pocketune delta save[/bold].", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class ApplyOptions:
    """The output."""

    out: Path = option("Kit to write: a folder or a .zip file.", metavar="KIT")


@command(
    "pocketune delta save runs/flowers --out flowers.safetensors",
    "pocketune delta save runs/flowers --out flowers.onnx_adapter",
)
def save(model: ModelArgument, options: SaveOptions) -> None:
    """Save what a run changed against its kit as one small file."""
    from pocketune.device import Delta, Model, export_adapter
    from pocketune.device.memory.sizes import format_size

    format, opened, verb = options.chosen, Model.open(model.run), written(options.out)
    if format == ADAPTER:
        export_adapter(opened, options.out)
        tensors = len(opened.state)
    else:
        made = Delta.of(opened)
        made.save(options.out)
        tensors = len(made.state)
    size = format_size(options.out.stat().st_size)
    learned = f"{opened.manifest.task.counted(len(opened.classes))}: {first_names(opened.classes)}"
    print(f"{verb} {options.out} ({size}): {tensors} tensors; {learned}")


@command(
    "pocketune delta show flowers.safetensors", "pocketune delta show roses.safetensors --json"
)
def show(shown: DeltaArgument, output: JsonOption) -> None:
    """Show which kit a delta belongs to, what it has learned, and which tensors it holds.

    With --json: one object with "path", the header's fields ("kit", "base", "network", "method",
    "task", "step", "score", "content") and "tensors", the shape of each by name.
    """
    from pocketune.device import Delta

    opened = Delta.load(shown.file)
    if not output.json:
        print("\n".join(_lines(opened, shown.file)))
        return
    shapes = {name: list(value.shape) for name, value in opened.state.items()}
    print(json.dumps({"path": str(shown.file), **opened.header.to_dict(), "tensors": shapes}))


def _lines(opened: Delta, file: Path) -> list[str]:
    from pocketune.device.memory.sizes import format_size
    from pocketune.kit.titles import full_title

    header, values = opened.header, opened.state.values()
    rows = {
        "delta": f"{file} ({format_size(file.stat().st_size)})",
        "kit": header.kit,
        "network": full_title(header.network),
        "method": full_title(header.method),
        header.task.noun: listed(opened.classes),
        "trained": counted(header.step, "step") + (f", {header.score}" if header.score else ""),
        "holds": f"{len(values)} tensors, {sum(value.size for value in values):,} values",
    }
    return [f"{name:<12} {value}" for name, value in rows.items()]


@command("pocketune delta apply blocks flowers.safetensors --out flowers.zip")
def apply(shown: KitArgument, file: DeltaArgument, options: ApplyOptions) -> None:
    """Write a kit that starts from the values of a delta, to train it further or to share it."""
    from pocketune.device import Delta

    verb = written(options.out)
    kit = Delta.load(file.file).apply(shown.kit, options.out)
    task = kit.manifest.task
    learned = f"{task.counted(len(task.classes))}: {first_names(task.classes)}"
    print(f"{verb} {kit.path}: a kit of {learned}")
