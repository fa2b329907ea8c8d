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
            help="A kit, a folder or .zip, or the name of a bundled one, blocks or last; or a run, "
            "to train its network on.",
            show_default=f"the bundled kit {DEFAULT}",
        ),
    ] = None
    out: Annotated[
        Path | None,
        _run_option(
            metavar="RUN",
            help="The run's folder. A kit made from a --network lies beside it for so long.",
            show_default="runs/ and the photos' name",
        ),
    ] = None
    resume: Annotated[
        Path | None,
        _run_option(
            metavar="RUN",
            help="Go on with a run that was stopped, from its last checkpoint; name PHOTOS only "
            "where they have moved.",
            show_default=False,
        ),
    ] = None
    budget: Annotated[
        str | None,
        _run_option(
            metavar="SIZE",
            help="Peak memory that the whole process may take, such as 96MB: a run that will "
            "not fit is refused.",
            show_default="no limit",
        ),
    ] = None
    checkpoint_every: Annotated[
        int | None,
        _run_option(
            metavar="STEPS",
            min=1,
            help="Save the run after so many steps.",
            show_default="2 minutes; an epoch's end always saves",
        ),
    ] = None


@dataclass(frozen=True)
class TrainingOptions:
    """How a run trains: arguments of ``pocketune.device.train``."""

    epochs: Annotated[
        int | None,
        _training_option(metavar="N", help="Passes over the photos.", show_default="20"),
    ] = None
    steps: Annotated[
        int | None,
        _training_option(metavar="N", help="Steps, instead of epochs.", show_default=False),
    ] = None
    optimizer: Annotated[Optimizer, _training_option(help="Update rule.")] = "adam"
    lr: Annotated[
        float | None,
        _training_option(
            metavar="RATE",
            help="Highest learning rate; it falls along a cosine.",
            show_default="0.0003, sgd 0.01",
        ),
    ] = None
    side_lr: Annotated[
        float | None,
        _training_option(
            metavar="RATE",
            help="Highest learning rate of side branches, where the method adds some: repnet, "
            "tinytl.",
            show_default="that of --lr",
        ),
    ] = None
    momentum: Annotated[
        float | None,
        _training_option(
            metavar="SHARE",
            help="For sgd; 0 saves the memory of the optimizer's state.",
            show_default="0.9",
        ),
    ] = None
    weight_decay: Annotated[
        float,
        _training_option(metavar="RATE", help="Decay of weights, not of biases."),
    ] = 0.0
    warmup: Annotated[
        int,
        _training_option(metavar="STEPS", help="Steps of linear warm-up."),
    ] = 0
    clip: Annotated[
        float | None,
        _training_option(
            metavar="NORM",
            help="Largest norm of all gradients together.",
            show_default="never clips",
        ),
    ] = None
    accumulate: Annotated[
        int,
        _training_option(
            metavar="N",
            help="Batches to one step: the update of a batch N times as large, in little more "
            "than the memory of one.",
        ),
    ] = 1
    patience: Annotated[
        int | None,
        _training_option(
            metavar="EPOCHS",
            help="Stop after so many epochs without a better validation.",
            show_default="never stops early",
        ),
    ] = None
    val_fraction: Annotated[
        float,
        _training_option(
            metavar="SHARE", help="Share of the photos to validate with, where they come undivided."
        ),
    ] = 0.2
    seed: Annotated[
        int,
        _training_option(
            metavar="N", help="Of all that is drawn: the same seed gives the same run."
        ),
    ] = 0


@dataclass(frozen=True)
class EngineOptions:
    """What computes gradients, and where."""

    engine: Annotated[
        Engine | None,
        _engine_option(
            help="ONNX Runtime; or PyTorch, which is installed separately and larger.",
            show_default="onnx; a resumed run's own",
        ),
    ] = None
    device: Annotated[Device, _engine_option(help="For PyTorch.")] = "cpu"
