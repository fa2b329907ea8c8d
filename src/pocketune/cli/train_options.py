"""Options of ``pocketune train`` alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from pocketune.cli.kits import DEFAULT
from pocketune.cli.options import Device, Engine, Optimizer

RUN_PANEL = "The run"
TRAINING_PANEL = "Training"
ENGINE_PANEL = "Engine"

_run_option = partial(typer.Option, rich_help_panel=RUN_PANEL)
_training_option = partial(typer.Option, rich_help_panel=TRAINING_PANEL)
_engine_option = partial(typer.Option, rich_help_panel=ENGINE_PANEL)


@dataclass(frozen=True)
class RunOptions:
    """What is trained, where it goes, and within what."""

    kit: Annotated[
        str | None,
        _run_option(
            metavar="KIT",
            help="Kit to train: a folder, a .zip or the name of a bundled one, blocks or last; or "
            "a run folder, to fine-tune its model further.",
            show_default=f"bundled kit {DEFAULT}",
        ),
    ] = None
    out: Annotated[
        Path | None,
        _run_option(
            metavar="RUN",
            help="Run folder. A kit built with --network is kept next to it during training.",
            show_default="runs/ and the name of PHOTOS",
        ),
    ] = None
    resume: Annotated[
        Path | None,
        _run_option(
            metavar="RUN",
            help="Resume a stopped run from its last checkpoint. Give PHOTOS only if they have "
            "moved.",
            show_default=False,
        ),
    ] = None
    budget: Annotated[
        str | None,
        _run_option(
            metavar="SIZE",
            help="Memory limit of the whole process, such as 96MB. A run that will not fit is "
            "refused.",
            show_default="no limit",
        ),
    ] = None
    checkpoint_every: Annotated[
        int | None,
        _run_option(
            metavar="STEPS",
            min=1,
            help="Save a checkpoint every STEPS steps.",
            show_default="every 2 minutes; always after an epoch",
        ),
    ] = None


@dataclass(frozen=True)
class TrainingOptions:
    """How a run trains: arguments of ``pocketune.device.train``."""

    epochs: Annotated[
        int | None,
        _training_option(metavar="N", help="Number of epochs.", show_default="20"),
    ] = None
    steps: Annotated[
        int | None,
        _training_option(
            metavar="N", help="Number of training steps, instead of --epochs.", show_default=False
        ),
    ] = None
    optimizer: Annotated[Optimizer, _training_option(help="Optimizer.")] = "adam"
    lr: Annotated[
        float | None,
        _training_option(
            metavar="RATE",
            help="Peak learning rate, followed by cosine decay.",
            show_default="0.0003; 0.01 for sgd",
        ),
    ] = None
    side_lr: Annotated[
        float | None,
        _training_option(
            metavar="RATE",
            help="Peak learning rate of side branches, for methods that add them: repnet, tinytl.",
            show_default="same as --lr",
        ),
    ] = None
    momentum: Annotated[
        float | None,
        _training_option(
            metavar="FACTOR",
            help="Momentum of sgd; 0 saves the memory of its buffer.",
            show_default="0.9",
        ),
    ] = None
    weight_decay: Annotated[
        float,
        _training_option(metavar="RATE", help="Weight decay; not applied to biases."),
    ] = 0.0
    warmup: Annotated[
        int,
        _training_option(metavar="STEPS", help="Number of linear warm-up steps."),
    ] = 0
    clip: Annotated[
        float | None,
        _training_option(
            metavar="NORM",
            help="Clip the global gradient norm to this value.",
            show_default="no clipping",
        ),
    ] = None
    accumulate: Annotated[
        int,
        _training_option(
            metavar="N",
            help="Accumulate gradients over N batches per optimizer step.",
        ),
    ] = 1
    patience: Annotated[
        int | None,
        _training_option(
            metavar="EPOCHS",
            help="Stop after this many epochs without a better validation result.",
            show_default="no early stopping",
        ),
    ] = None
    val_fraction: Annotated[
        float,
        _training_option(
            metavar="FRACTION",
            help="Fraction of the photos for validation, if there is no train/val split.",
        ),
    ] = 0.2
    seed: Annotated[
        int,
        _training_option(metavar="N", help="Random seed."),
    ] = 0


@dataclass(frozen=True)
class EngineOptions:
    """What computes gradients, and where."""

    engine: Annotated[
        Engine | None,
        _engine_option(
            help="ONNX Runtime, or PyTorch (installed separately).",
            show_default="onnx; a resumed run keeps its own",
        ),
    ] = None
    device: Annotated[Device, _engine_option(help="Device for PyTorch.")] = "cpu"
