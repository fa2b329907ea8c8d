"""`pocketune train`."""

from __future__ import annotations

import shlex
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pocketune.cli.author import built_kit, remove_abandoned
from pocketune.cli.command import command, given
from pocketune.cli.deadline import Deadline
from pocketune.cli.errors import print_error, print_skipped
from pocketune.cli.options import (
    FIXED_IN_A_KIT,
    ImageOptions,
    KitStepOptions,
    MethodOptions,
    NetworkOptions,
    ShapeOptions,
    argument,
    check_network_given,
    of_network,
    shown_name,
)
from pocketune.cli.plan import ChoiceOptions, planned
from pocketune.device.train.settings import RUN_PANEL, TrainSettings
from pocketune.errors import author_half, counted
from pocketune.options import option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pocketune.device.engine.base import EngineFactory
    from pocketune.device.train import TrainResult
    from pocketune.kit.packed import RunFile

ENGINE_PANEL = "Engine"
_EARLY = {"patience": " (stopped early: no better epoch)", "time": " (no more in the time limit)"}
"""What is said of a run that ended before its last step, by the reason."""
_UNTRAINED = {
    "kept": "the result is the kit or run as it was",
    "random": "the classifier is random, so the result is of no use",
}
"""What the result of a run without a better step is, by where its classifier comes from."""
_COMPUTED = "the result is the classifier computed from the photos, on the network as it was"
_PLANNED = {"budget", "time", "kits", "weights_dir"}
"""Options with which a plan is made, unless a kit or a network is given."""
_ON_RESUME = {"resume", "photos", "budget", "engine", "device"}


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The photos, the kit and the run folder."""

    photos: str | Path | None = argument(
        "Labeled photos: a folder with one subfolder per class (optionally below train/, val/ and "
        "test/, which no run sees), a CSV of file and label, a CSV of file and a 0/1 column per "
        "attribute, folders images/ and masks/, a CSV of image and mask, polygons of COCO, labelme "
        "or YOLO, or a .zip of these.",
        default=None,
        metavar="PHOTOS",
    )
    kit: str | Path | None = option(
        "Kit to train: a folder, a .zip or the name of a bundled one, attributes, blocks, last or "
        "masks; or a run folder, to fine-tune its model further.",
        default=None,
        metavar="KIT",
        unset="planned with --budget or --time, else the bundled kit for the photos",
        panel=RUN_PANEL,
    )
    out: Path | None = option(
        "Run folder. A kit built with --network is kept next to it during training.",
        default=None,
        metavar="RUN",
        unset="runs/ and the name of PHOTOS",
        panel=RUN_PANEL,
    )
    resume: Path | None = option(
        "Resume a stopped run from its last checkpoint. Give PHOTOS only if they have moved.",
        default=None,
        metavar="RUN",
        panel=RUN_PANEL,
    )


@dataclass(frozen=True, kw_only=True)
class TrainedNetwork:
    """The network to build a kit from first."""

    network: str | None = of_network(
        "Build a kit from this network first: a name of [bold]pocketune networks[/bold], or an "
        ".onnx file.",
        default=None,
        metavar="NAME",
    )


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """The engine that computes gradients, and its device."""

    engine: str | None = option(
        "ONNX Runtime, or PyTorch (installed separately).",
        default=None,
        choices=("onnx", "torch"),
        unset="onnx; a resumed run keeps its own",
        panel=ENGINE_PANEL,
    )
    device: str = option(
        "Device for PyTorch.", default="cpu", choices=("cpu", "cuda"), panel=ENGINE_PANEL
    )


@command(
    "pocketune train photos/",
    "pocketune train photos/ --budget 96MB --time 10m",
    "pocketune train photos.zip --kit flowers.zip --budget 96MB --out runs/flowers",
    "pocketune train photos/ --network mobilenet_v2 --weights imagenet \\",
    "    --method blocks",
    "pocketune train attributes.csv",
    "pocketune train camvid.zip --network deeplabv3 --backbone mobilenet_v2 \\",
    "    --weights imagenet --ignore void --class-weights balanced",
    "pocketune train --resume runs/flowers",
)
def train(
    run: RunOptions,
    choice: ChoiceOptions,
    settings: TrainSettings,
    trained: TrainedNetwork,
    network: NetworkOptions,
    images: ImageOptions,
    shape: ShapeOptions,
    method: MethodOptions,
    step: KitStepOptions,
    engine: EngineOptions,
) -> None:
    """Fine-tune a network on labeled photos.

    With --budget or --time, and without --kit or --network, what fits and learns best is chosen
    first, as [bold]pocketune plan[/bold] does. Without any of these, a bundled network is trained.
    With --network, a kit is built first, using the options under Network and Training method; this
    needs PyTorch.

    Ctrl-C saves the run and prints the command that resumes it.
    """
    _check_usage(engine)
    if run.resume is not None:
        _print_result(_resume(run.resume, run.photos, settings, engine))
        return
    assert run.photos is not None  # _check_usage has checked it
    from pocketune.data import task_of
    from pocketune.device.train.folder import check_new_run_folder, next_run
    from pocketune.kit.bundled import bundled_kit, default_kit, kit_path

    out, deadline = run.out or next_run(run.photos), Deadline.of(choice.time)
    check_new_run_folder(out)  # before a plan is made or a kit is built, which takes a while
    if trained.network is not None:
        groups = (network, images, shape, method, step)
        options = {name: each for group in groups for name, each in asdict(group).items()}
        reading = {"ignore": settings.ignore, "class_names": settings.class_names}
        options = {"photos": run.photos, "budget": settings.budget, **options, **reading}
        with built_kit(trained.network, options, out) as (path, values):
            _print_result(_train(path, run.photos, out, settings, engine, deadline, values))
        return
    default = None
    if run.kit is not None:
        kit = kit_path(run.kit)
    elif _PLANNED & given().keys():
        kit, settings = planned(run.photos, run.out, settings, choice)
    else:
        default = default_kit(task_of(run.photos).name)
        kit = bundled_kit(default)
    _print_result(_train(kit, run.photos, out, settings, engine, deadline))
    if default is not None:
        print_error(
            f"this was the bundled kit {default!r}; choose another with --kit, or let Pocketune "
            "choose with --budget or --time"
        )


def _train(
    kit: Path,
    photos: str | Path,
    out: Path,
    settings: TrainSettings,
    engine: EngineOptions,
    deadline: Deadline,
    values: RunFile | None = None,
) -> TrainResult:
    from pocketune.device.train import train as train_kit
    from pocketune.kit.names import NETWORK
    from pocketune.kit.storage import run_file

    values = values or run_file(kit, NETWORK)  # of a run with PyTorch, or of kit build
    engines = _engines(engine, values)
    return train_kit(kit, photos, out, settings, engine=engines, seconds=deadline.left)


def _resume(
    run: Path, photos: str | Path | None, settings: TrainSettings, engine: EngineOptions
) -> TrainResult:
    from pocketune.device.train import resume as resume_run
    from pocketune.files import reading
    from pocketune.kit.names import NETWORK

    with reading(f"the run folder {run}"):
        if engine.engine is None and (run / NETWORK).exists():
            engine = replace(engine, engine="torch")
    if engine.engine != "torch" and engine.device != "cpu":
        raise click.BadParameter("needs --engine torch; this run uses onnx", param_hint="--device")
    remove_abandoned(run)
    return resume_run(run, photos, budget=settings.budget, engine=_engines(engine))


def _engines(chosen: EngineOptions, network: RunFile | None = None) -> EngineFactory | None:
    """The factory of the engine; None for ONNX Runtime."""
    if chosen.engine != "torch":
        return None
    with author_half("--engine torch"):
        from pocketune.eager.run import TorchEngines
    return TorchEngines(chosen.device, network)


def _print_result(result: TrainResult) -> None:
    from pocketune.device.memory.sizes import format_size

    with suppress(OSError):  # the run has succeeded even if nobody reads this
        print(", ".join(_told(result)))
        if not result.best_step and (result.steps or result.reason == "time"):
            why = "" if result.steps else "there was no time for a step: "
            print(why + _UNTRAINED.get(result.head, _COMPUTED))
        print_skipped(result.skipped)
        print(f"peak memory {format_size(result.peak_memory)}")
        print(f"saved in {result.run}", flush=True)
    print_error(f"try: pocketune predict {shlex.quote(str(result.run))} PHOTO")


def _told(result: TrainResult) -> Iterator[str]:
    """The steps of a run, and how good their best is."""
    steps = counted(result.steps, "step") if result.steps else "no steps"
    yield steps + _EARLY.get(result.reason, "")
    from pocketune.device.train.record import RunRecord

    photos = RunRecord.read(result.run).photos
    if photos.untrained:
        yield f"trained on {photos.trained:,} of {counted(photos.training, 'photo')}"
    if result.best is not None:
        if result.best_step:
            yield f"best at step {result.best_step}"
        elif result.steps:
            yield "none better than the start"
        yield f"{result.best} on {counted(photos.scored, 'validation photo')}"
    elif not result.best_step and result.estimate is not None:
        from pocketune.device.train.display import estimate_kind

        yield f"{estimate_kind(result.head)} {result.estimate}"


def _check_usage(engine: EngineOptions) -> None:
    """Check that the options on the command line can be combined.

    Raises:
        click.BadParameter: Two options exclude each other, or one needs another; exit code 2.
    """
    options = given()
    of_kit = [each for each in options.values() if each.option.panel in FIXED_IN_A_KIT]
    if "resume" in options:
        for name, each in options.items():
            if name not in _ON_RESUME:
                raise click.BadParameter(
                    "cannot be combined with --resume: a resumed run keeps its settings; only "
                    "PHOTOS, --budget, --engine and --device can be given",
                    param_hint=shown_name(each),
                )
    elif "photos" not in options:
        context = click.get_current_context()
        raise click.UsageError("Missing argument 'PHOTOS'; only --resume needs none.", context)
    elif "kit" in options and of_kit:
        raise click.BadParameter(
            "cannot be combined with --kit: a kit's network and method are fixed",
            param_hint=shown_name(of_kit[0]),
        )
    else:
        check_network_given(options)
    for name in ("kits", "weights_dir"):
        if name in options and ("kit" in options or "network" in options):
            raise click.BadParameter(
                "cannot be combined with --kit or --network: there is nothing to choose",
                param_hint=shown_name(options[name]),
            )
    if engine.engine == "torch" and not {"kit", "network", "resume"} & options.keys():
        raise click.BadParameter("needs --kit or --network", param_hint="--engine torch")
    if "device" in options and engine.engine != "torch" and "resume" not in options:
        raise click.BadParameter("needs --engine torch", param_hint="--device")
