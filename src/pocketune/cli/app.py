"""``pocketune``: all commands under one name.

Every command imports what it needs when it runs, for the memory of ``train`` is counted. Typer
itself takes 1.5 MB beside what training imports anyway; it brings in rich for help and usage
errors alone.
"""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
import warnings
from typing import Annotated, Any

import typer

import pocketune
from pocketune.cli.demo import demo
from pocketune.cli.errors import tell
from pocketune.cli.evaluate import evaluate
from pocketune.cli.export import export
from pocketune.cli.group import CommandGroup
from pocketune.cli.kit_build import build
from pocketune.cli.kit_show import show
from pocketune.cli.lists import methods, networks
from pocketune.cli.predict import predict
from pocketune.cli.profile import profile
from pocketune.cli.prune import prune
from pocketune.cli.retrain import retrain
from pocketune.cli.tables import tables
from pocketune.cli.train import train
from pocketune.device.train.interrupt import ending_signals

USE, AUTHOR = "Train and use", "Networks, methods and kits (need PyTorch)"

app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
kit = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")


def examples(*lines: str) -> str:
    """Text for the end of a command's help."""
    return "\n".join(["[bold]Examples[/bold]", *(f"  {line}" for line in lines)])


app.command(
    rich_help_panel=USE,
    epilog=examples(
        "pocketune train photos/",
        "pocketune train photos.zip --kit flowers.zip --budget 96MB --out runs/flowers",
        "pocketune train photos/ --network mobilenet_v2 --weights imagenet --method blocks",
        "pocketune train attributes.csv --network mobilenet_v2 --weights imagenet",
        "pocketune train --resume runs/flowers",
    ),
)(train)
app.command(
    rich_help_panel=USE,
    epilog=examples(
        "pocketune predict runs/flowers new.jpg holiday/",
        "pocketune predict runs/flowers holiday/ --json | jq -r 'select(.error | not) | .image'",
    ),
)(predict)
app.command(
    rich_help_panel=USE,
    epilog=examples(
        "pocketune evaluate runs/flowers",
        "pocketune evaluate runs/flowers test.zip --confusion confusion.csv",
        "pocketune evaluate runs/flowers --json | jq .top1",
    ),
)(evaluate)
app.command(
    rich_help_panel=USE, epilog=examples("pocketune export runs/flowers --out flowers.onnx")
)(export)
app.command(rich_help_panel=USE)(demo)
app.command(
    rich_help_panel=AUTHOR,
    epilog=examples(
        "pocketune prune mobilenet_v2 --weights imagenet --photos photos/ --out pruned.safetensors",
        "pocketune train photos/ --network mobilenet_v2 --weights pruned.safetensors \\",
        "    --method repnet",
    ),
)(prune)
app.command(
    rich_help_panel=AUTHOR,
    epilog=examples(
        "pocketune retrain pruned.safetensors --photos imagenette/ --teacher imagenet \\",
        "    --out retrained.safetensors",
        "pocketune retrain mobilenet_v2 --weights imagenet --lite-residual \\",
        "    --photos imagenette/ --out with_modules.safetensors",
    ),
)(retrain)
app.add_typer(kit, name="kit", rich_help_panel=AUTHOR, help="Build kits, or show what is in one.")
app.command(
    rich_help_panel=AUTHOR,
    epilog=examples(
        "pocketune profile mobilenet_v2 --method blocks --blocks 3 --batch 8 --size 224",
        "pocketune profile mobilenet_v2 --method bias --plot step.svg",
        "pocketune profile resnet18 --method last --json | jq .total_bytes",
    ),
)(profile)
app.command(rich_help_panel=AUTHOR)(networks)
app.command(rich_help_panel=AUTHOR)(methods)
app.command(
    rich_help_panel=AUTHOR,
    epilog=examples("pocketune tables", "pocketune tables mobiletl-3 --json | jq .rows"),
)(tables)
kit.command(
    epilog=examples(
        "pocketune kit build mobilenet_v2 --weights imagenet --out mobilenet.zip",
        "pocketune kit build mcunet_5fps --weights mcunet.safetensors \\",
        "    --method bias --size 160 --photos photos/ --out flowers.zip",
    ),
)(build)
kit.command(
    epilog=examples(
        "pocketune kit show blocks", "pocketune kit show flowers.zip --json | jq .classes"
    )
)(show)


def _version(asked: bool) -> None:
    if asked:
        print(f"pocketune {pocketune.__version__}")
        raise typer.Exit


@app.callback(
    epilog=examples(
        "pocketune demo                          see it work",
        "pocketune train photos/                 photos/ has one folder per class",
        "pocketune predict runs/photos new.jpg   what is on this photo?",
        "pocketune export runs/photos            one model.onnx for any runtime",
    )
)
def pocketune_(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Fine-tune a vision network on the device where its data lives, inside a memory budget."""


def main() -> None:
    """Run the command that the process's arguments name, and exit with its code."""
    warnings.filterwarnings("ignore", module="PIL")  # what it finds odd about photos
    warnings.showwarning = _show_warning
    log = logging.getLogger("pocketune")
    log.setLevel(logging.INFO)
    log.addHandler(_Notes())
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # file names need not be valid text
            stream.reconfigure(errors="backslashreplace")
    for number in ending_signals():  # as Ctrl-C, so that nothing temporary stays behind
        signal.signal(number, signal.default_int_handler)
    try:
        app(prog_name="pocketune")
    finally:
        _flush()


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """One line for what the user should know; where in the code it was said is no matter."""
    if issubclass(category, UserWarning):
        tell(f"warning: {message}")


class _Notes(logging.Handler):
    """What was found on the way, such as why a layer is filtered."""

    def emit(self, record: logging.LogRecord) -> None:
        tell(f"note: {record.getMessage()}")


def _flush() -> None:
    """Write out what is left, where somebody still reads it (not ``pocketune methods | head``)."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
