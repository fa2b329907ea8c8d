"""``pocketune train``."""

from __future__ import annotations

import shlex
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pocketune.cli.author import author_half, built_kit
from pocketune.cli.kits import DEFAULT, default_kit
from pocketune.cli.left_out import print_left_out
from pocketune.cli.options import (
    KIT_PANEL,
    Batch,
    Blocks,
    Device,
    Engine,
    FrozenBits,
    Method,
    MethodOptions,
    Optimizer,
    Padded,
    Size,
    Smoothing,
    Weights,
    Width,
)
from pocketune.cli.out import next_run
from pocketune.cli.usage import check_train_usage

if TYPE_CHECKING:
    from pocketune.device import TrainResult
    from pocketune.device.engine import EngineFactory

RUN_PANEL = "The run"
HOW_PANEL = "How it trains"
ENGINE_PANEL = "What computes"


def train(
    context: typer.Context,
    photos: Annotated[
        str | None,
        typer.Argument(
            metavar="PHOTOS",
            help="A folder with a folder for each class (also divided into train/ and val/), a "
            "CSV of file and label, or of file and a column of 0 and 1 for each attribute, or a "
            ".zip of either.",
            show_default=False,
        ),
    ] = None,
    kit: Annotated[
        str | None,
        typer.Option(
            metavar="KIT",
            help="A kit, a folder or .zip, or the name of a bundled one, blocks or last; or a run, "
            "to train its network on.",
            show_default=f"the bundled kit {DEFAULT}",
            rich_help_panel=RUN_PANEL,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="The run's folder. A kit made from a --network lies beside it for so long.",
            show_default="runs/ and the photos' name",
            rich_help_panel=RUN_PANEL,
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Go on with a run that was stopped, from its last checkpoint; name PHOTOS only "
            "where they have moved.",
            show_default=False,
            rich_help_panel=RUN_PANEL,
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Peak memory that the whole process may take, such as 96MB: a run that will "
            "not fit is refused.",
            show_default="no limit",
            rich_help_panel=RUN_PANEL,
        ),
    ] = None,
    checkpoint_every: Annotated[
        int | None,
        typer.Option(
            metavar="STEPS",
            min=1,
            help="Save the run after so many steps.",
            show_default="2 minutes; an epoch's end always saves",
            rich_help_panel=RUN_PANEL,
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Passes over the photos.",
            show_default="20",
            rich_help_panel=HOW_PANEL,
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Steps, instead of epochs.",
            show_default=False,
            rich_help_panel=HOW_PANEL,
        ),
    ] = None,
    optimizer: Annotated[
        Optimizer, typer.Option(help="Update rule.", rich_help_panel=HOW_PANEL)
    ] = "adam",
    lr: Annotated[
        float | None,
        typer.Option(
            metavar="RATE",
            help="Highest learning rate; it falls along a cosine.",
            show_default="0.0003, sgd 0.01",
            rich_help_panel=HOW_PANEL,
        ),
    ] = None,
    side_lr: Annotated[
        float | None,
        typer.Option(
            metavar="RATE",
            help="Highest learning rate of side branches, where the method adds some: repnet, "
            "tinytl.",
            show_default="that of --lr",
            rich_help_panel=HOW_PANEL,
        ),
    ] = None,
    momentum: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="For sgd; 0 saves the memory of the optimizer's state.",
            show_default="0.9",
            rich_help_panel=HOW_PANEL,
        ),
    ] = None,
    weight_decay: Annotated[
        float,
        typer.Option(
            metavar="RATE", help="Decay of weights, not of biases.", rich_help_panel=HOW_PANEL
        ),
    ] = 0.0,
    warmup: Annotated[
        int,
        typer.Option(metavar="STEPS", help="Steps of linear warm-up.", rich_help_panel=HOW_PANEL),
    ] = 0,
    clip: Annotated[
        float | None,
        typer.Option(
            metavar="NORM",
            help="Largest norm of all gradients together.",
            show_default="never clips",
            rich_help_panel=HOW_PANEL,
        ),
    ] = None,
    accumulate: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Batches to one step: the update of a batch N times as large, in little more "
            "than the memory of one.",
            rich_help_panel=HOW_PANEL,
        ),
    ] = 1,
    patience: Annotated[
        int | None,
        typer.Option(
            metavar="EPOCHS",
            help="Stop after so many epochs without a better validation.",
            show_default="never stops early",
            rich_help_panel=HOW_PANEL,
        ),
    ] = None,
    val_fraction: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Share of the photos to validate with, where they come undivided.",
            rich_help_panel=HOW_PANEL,
        ),
    ] = 0.2,
    seed: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Of all that is drawn: the same seed gives the same run.",
            rich_help_panel=HOW_PANEL,
        ),
    ] = 0,
    network: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="See [bold]pocketune networks[/bold].",
            show_default=False,
            rich_help_panel=KIT_PANEL,
        ),
    ] = None,
    width: Width = 1.0,
    weights: Weights = None,
    padding: Padded = "symmetric",
    method: Method = "blocks",
    blocks: Blocks = None,
    method_option: MethodOptions = None,
    size: Size = 224,
    batch: Batch = 8,
    label_smoothing: Smoothing = 0.0,
    frozen_bits: FrozenBits = None,
    engine: Annotated[
        Engine | None,
        typer.Option(
            help="ONNX Runtime; or PyTorch, which is installed separately and larger.",
            show_default="onnx; a resumed run's own",
            rich_help_panel=ENGINE_PANEL,
        ),
    ] = None,
    device: Annotated[
        Device, typer.Option(help="For PyTorch.", rich_help_panel=ENGINE_PANEL)
    ] = "cpu",
) -> None:
    """Fine-tune a network on a folder of photos.

    Without --kit and --network, the network that comes with Pocketune is trained.

    Ctrl-C saves the run and says how to go on.
    """
    check_train_usage(context)
    if resume is not None:
        _tell(_resume(resume, photos, budget, engine, device))
        return
    assert photos is not None  # checked with the usage
    out = out or next_run(photos)
    how = {
        "epochs": epochs,
        "steps": steps,
        "lr": lr,
        "side_lr": side_lr,
        "optimizer": optimizer,
        "momentum": momentum,
        "weight_decay": weight_decay,
        "warmup": warmup,
        "clip": clip,
        "budget": budget,
        "seed": seed,
        "patience": patience,
        "val_fraction": val_fraction,
        "checkpoint_steps": checkpoint_every,
        "accumulate": accumulate,
    }
    if network is None:
        path = Path(kit) if kit else default_kit()
        from pocketune.device.run_folder import NETWORK

        values = path / NETWORK  # of a run by PyTorch, or put there by kit build --save-network
        beside = values if values.is_file() else None
        _tell(_train(path, photos, out, how, _engines(engine, device, beside)))
        return
    _check(photos, out, how)
    made = {
        "photos": photos,
        "network": network,
        "width": width,
        "weights": weights,
        "padding": padding,
        "method": method,
        "blocks": blocks,
        "method-option": method_option,
        "size": size,
        "batch": batch,
        "label-smoothing": label_smoothing,
        "frozen-bits": frozen_bits,
    }
    with built_kit(made, out) as (path, values):
        _tell(_train(path, photos, out, how, _engines(engine, device, values)))


def _check(photos: str, out: Path, how: dict[str, Any]) -> None:
    """Refuse what can be refused before a kit is made, which takes its time."""
    from pocketune.device.run_folder import check_new_run_folder
    from pocketune.device.settings import TrainSettings

    TrainSettings.new(photos, **how)
    check_new_run_folder(out)


def _train(
    kit: Path, photos: str, out: Path, how: dict[str, Any], engines: EngineFactory | None
) -> TrainResult:
    from pocketune.device import train as train_kit

    return train_kit(kit, photos, out=out, engine=engines, **how)


def _resume(
    run: Path, photos: str | None, budget: str | None, engine: Engine | None, device: Device
) -> TrainResult:
    from pocketune.device import resume as resume_run
    from pocketune.device.run_folder import NETWORK

    if engine is None and (run / NETWORK).exists():
        engine = "torch"
    if engine != "torch" and device != "cpu":
        raise typer.BadParameter("the run is of the engine onnx", param_hint="--device")
    return resume_run(run, photos, budget=budget, engine=_engines(engine, device))


def _engines(
    engine: Engine | None, device: Device, network: Path | None = None
) -> EngineFactory | None:
    """What makes the engine; None for ONNX Runtime."""
    if engine != "torch":
        return None
    with author_half("the engine torch"):
        from pocketune.compiler.torch_run import TorchEngines
    return TorchEngines(device, network)


def _tell(result: TrainResult) -> None:
    from pocketune.device.size import format_size

    best = "" if result.best_accuracy is None else f", accuracy {result.best_accuracy:.1%}"
    early = " (stopped early)" if result.reason == "patience" else ""
    with suppress(BrokenPipeError):  # the run was a success, whoever reads of it
        print(f"{result.steps} steps{early}, best after {result.best_step}{best}")
        print_left_out(result.skipped)
        print(f"peak memory {format_size(result.peak_memory)}")
        print(f"saved in {result.run}; try: pocketune predict {shlex.quote(str(result.run))} PHOTO")
