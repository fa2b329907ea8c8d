"""``pocketune train``."""

from __future__ import annotations

import shlex
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pocketune.cli.author import author_half, built_kit
from pocketune.cli.expand import expand
from pocketune.cli.kits import default_kit
from pocketune.cli.left_out import print_left_out
from pocketune.cli.options import NETWORK_PANEL, KitStepOptions, MethodOptions, NetworkOptions
from pocketune.cli.out import next_run
from pocketune.cli.train_options import EngineOptions, RunOptions, TrainingOptions
from pocketune.cli.usage import check_train_usage

if TYPE_CHECKING:
    from pocketune.device.engine.base import EngineFactory
    from pocketune.device.train import TrainResult


@expand
def train(
    context: typer.Context,
    photos: Annotated[
        str | None,
        typer.Argument(
            metavar="PHOTOS",
            help="Labeled photos: a folder with one subfolder per class (optionally split into "
            "train/ and val/), a CSV of file and label, a CSV of file and a 0/1 column per "
            "attribute, or a .zip of these.",
            show_default=False,
        ),
    ] = None,
    *,
    run: RunOptions,
    training: TrainingOptions,
    network: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Build a kit from this network first; see [bold]pocketune networks[/bold].",
            show_default=False,
            rich_help_panel=NETWORK_PANEL,
        ),
    ] = None,
    network_options: NetworkOptions,
    method_options: MethodOptions,
    step_options: KitStepOptions,
    engine_options: EngineOptions,
) -> None:
    """Fine-tune a network on labeled photos.

    Without --kit or --network, a bundled network is trained. With --network, a kit is built first,
    using the options under Network and Training method; this needs PyTorch.

    Ctrl-C saves the run and prints the command that resumes it.
    """
    check_train_usage(context)
    if run.resume is not None:
        _tell(_resume(run.resume, photos, run.budget, engine_options))
        return
    assert photos is not None  # checked with the usage
    out = run.out or next_run(photos)
    how = {
        **asdict(training),
        "budget": run.budget,
        "checkpoint_every": run.checkpoint_every,
    }
    if network is None:
        path = Path(run.kit) if run.kit else default_kit()
        from pocketune.kit.names import NETWORK

        values = path / NETWORK  # of a run by PyTorch, or put there by kit build --save-network
        beside = values if values.is_file() else None
        _tell(_train(path, photos, out, how, _engines(engine_options, beside)))
        return
    _check(out, how)
    made = {
        "photos": photos,
        **asdict(network_options),
        **asdict(method_options),
        **asdict(step_options),
    }
    with built_kit(network, made, out) as (path, values):
        _tell(_train(path, photos, out, how, _engines(engine_options, values)))


def _check(out: Path, how: dict[str, Any]) -> None:
    """Refuse what can be refused before a kit is made, which takes its time."""
    from pocketune.device.train.folder import check_new_run_folder
    from pocketune.device.train.settings import TrainSettings

    TrainSettings(**how)
    check_new_run_folder(out)


def _train(
    kit: Path, photos: str, out: Path, how: dict[str, Any], engines: EngineFactory | None
) -> TrainResult:
    from pocketune.device.train import train as train_kit

    return train_kit(kit, photos, out=out, engine=engines, **how)


def _resume(
    run: Path, photos: str | None, budget: str | None, chosen: EngineOptions
) -> TrainResult:
    from pocketune.device.train import resume as resume_run
    from pocketune.kit.names import NETWORK

    if chosen.engine is None and (run / NETWORK).exists():
        chosen = EngineOptions("torch", chosen.device)
    if chosen.engine != "torch" and chosen.device != "cpu":
        raise typer.BadParameter("needs --engine torch; this run uses onnx", param_hint="--device")
    return resume_run(run, photos, budget=budget, engine=_engines(chosen))


def _engines(chosen: EngineOptions, network: Path | None = None) -> EngineFactory | None:
    """What makes the engine; None for ONNX Runtime."""
    if chosen.engine != "torch":
        return None
    with author_half("--engine torch"):
        from pocketune.eager.run import TorchEngines
    return TorchEngines(chosen.device, network)


def _tell(result: TrainResult) -> None:
    from pocketune.device.memory.sizes import format_size

    best = "" if result.best_accuracy is None else f", accuracy {result.best_accuracy:.1%}"
    early = " (stopped early)" if result.reason == "patience" else ""
    with suppress(BrokenPipeError):  # the run was a success, whoever reads of it
        print(f"{result.steps} steps{early}, best at step {result.best_step}{best}")
        print_left_out(result.skipped)
        print(f"peak memory {format_size(result.peak_memory)}")
        print(f"saved in {result.run}; try: pocketune predict {shlex.quote(str(result.run))} PHOTO")
