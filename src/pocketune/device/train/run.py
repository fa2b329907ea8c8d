"""A training run from a kit and photos to a run folder, and on from where one was stopped."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pocketune.arrays import StrPath
from pocketune.device.engine.accumulate import accumulating, check_accumulation
from pocketune.device.memory.budget import check_budget
from pocketune.device.memory.process import process_memory
from pocketune.device.memory.reclaim import reclaim
from pocketune.device.memory.sizes import parse_size
from pocketune.device.train.checkpoint import Checkpoint, Counters, RunIdentity
from pocketune.device.train.classifier import with_new_classifier
from pocketune.device.train.folder import new_run_folder, open_run_folder
from pocketune.device.train.interrupt import StopRequest, interrupted
from pocketune.device.train.log import MetricsFile, Recorder
from pocketune.device.train.loop import Loop
from pocketune.device.train.optimizer import Optimizer, create_optimizer
from pocketune.device.train.photos import Photos
from pocketune.device.train.progress import Progress, console
from pocketune.device.train.settings import TrainSettings
from pocketune.device.use.model import Model
from pocketune.errors import PocketuneError
from pocketune.kit.kit import Kit
from pocketune.kit.names import LAST, METRICS

if TYPE_CHECKING:
    from pocketune.arrays import State
    from pocketune.data import Skipped
    from pocketune.device.engine.base import Engine, EngineFactory


@dataclass(frozen=True)
class TrainResult:
    """How a run ended.

    Attributes:
        run: The run folder, which ``predict``, ``evaluate`` and ``export`` take.
        classes: Class names in the order of the logits.
        steps: Optimizer steps made.
        reason: ``steps`` when all were made, ``patience`` when it stopped early.
        best_step: The step of the values in ``best.safetensors``.
        best_accuracy: Their share of right guesses on the validation photos, of all attributes
            where photos have those; None where there were none.
        best_loss: Their mean loss on them.
        peak_memory: Peak resident bytes of this process.
        skipped: Files that were left out, each with the reason.
    """

    run: Path
    classes: tuple[str, ...]
    steps: int
    reason: str
    best_step: int
    best_accuracy: float | None
    best_loss: float | None
    peak_memory: int
    skipped: tuple[Skipped, ...]


def train(
    kit: Kit | StrPath,
    photos: StrPath,
    *,
    out: StrPath,
    epochs: int | None = None,
    steps: int | None = None,
    lr: float | None = None,
    side_lr: float | None = None,
    optimizer: str = "adam",
    momentum: float | None = None,
    weight_decay: float = 0.0,
    warmup: int = 0,
    clip: float | None = None,
    budget: str | int | None = None,
    seed: int = 0,
    patience: int | None = None,
    val_fraction: float = 0.2,
    checkpoint_every: int | None = None,
    checkpoint_seconds: float | None = 120.0,
    accumulate: int = 1,
    engine: EngineFactory | None = None,
    progress: Progress | None = None,
) -> TrainResult:
    """Fine-tune a kit on labeled photos.

    Nothing is written outside ``out``. Training starts from the kit's values, or where a run is
    named, from those that it has trained; where the photos' classes are not the same, from a new
    output layer.

    Example:
        >>> train("kit/", "photos/", out="runs/flowers", budget="96MB")  # doctest: +SKIP

    Args:
        kit: A kit or a run, or the path of one.
        photos: A folder of class folders, a CSV of file and label or of file and attributes (for
            a kit of that kind), or a .zip of either.
        out: The run folder to make.
        epochs: Passes over the photos; 20 where neither this nor ``steps`` is given.
        steps: Optimizer steps, instead of ``epochs``.
        lr: Highest learning rate; 3e-4 for Adam and AdamW and 1e-2 for SGD where not given.
        side_lr: Highest learning rate of the side branches that a method has added, Rep-Net's and
            TinyTL's; that of everything else where not given.
        optimizer: ``adam``, ``adamw`` or ``sgd``.
        momentum: SGD's, 0.9 where not given; 0 keeps no optimizer state.
        weight_decay: Decay of the weights.
        warmup: Steps of linear warm-up before the cosine.
        clip: Largest L2 norm of all gradients together.
        budget: Peak resident memory of the whole process, such as ``"96MB"``.
        seed: Of everything that is drawn; the same seed gives the same run.
        patience: Epochs without a better validation after which to stop.
        val_fraction: Share to validate on where the photos come without a split.
        checkpoint_every: Save after so many steps.
        checkpoint_seconds: Save after so many seconds. The end of an epoch always saves.
        accumulate: Batches of the kit whose gradients make one step: the update of a batch so
            many times as large, in little more than the memory of one.
        engine: What computes gradients; ONNX Runtime where not given.
        progress: What shows the run; standard output where not given.

    Raises:
        Interrupted: Ctrl-C; the run is saved and the exception tells how to go on.
        BudgetExceeded: The run would not fit, or took more than it may.
        Diverged: The loss or a gradient is no longer finite.
        PocketuneError: Anything else about the kit, the photos, the settings or the disk.
    """
    settings = TrainSettings.new(
        photos,
        epochs=epochs,
        steps=steps,
        lr=lr,
        side_lr=side_lr,
        optimizer=optimizer,
        momentum=momentum,
        weight_decay=weight_decay,
        warmup=warmup,
        clip=clip,
        budget=budget,
        seed=seed,
        patience=patience,
        val_fraction=val_fraction,
        checkpoint_every=checkpoint_every,
        checkpoint_seconds=checkpoint_seconds,
        accumulate=accumulate,
    )
    kit = kit if isinstance(kit, Kit) else Kit.open(kit)
    return _begin(kit, settings, Path(out), engine or _onnx_engine(), progress)


def resume(
    run: StrPath,
    photos: StrPath | None = None,
    *,
    budget: str | int | None = None,
    engine: EngineFactory | None = None,
    progress: Progress | None = None,
) -> TrainResult:
    """Go on with a run from its last checkpoint; it ends as if it had never been stopped.

    Args:
        run: The run folder.
        photos: Where the run's photos are now; where they were, if not given.
        budget: Peak resident memory from now on; as before where not given.
        engine: The same kind of engine as before; ONNX Runtime where not given.
        progress: What shows the run; standard output where not given.

    Raises:
        PocketuneError: The folder is no run, the run is complete, another process is training
            it, or the kit or the photos are not those that it was begun with. And all that
            :func:`train` raises.
    """
    folder = Path(run)
    with open_run_folder(folder) as kit:
        return _go_on(kit, folder, photos, budget, engine or _onnx_engine(), progress)


def _go_on(
    kit: Kit,
    folder: Path,
    moved: StrPath | None,
    budget: str | int | None,
    factory: EngineFactory,
    progress: Progress | None,
) -> TrainResult:
    reclaim()
    before = process_memory()
    checkpoint = Checkpoint.load(folder / LAST)
    checkpoint.require_fits(kit, folder / LAST)
    if checkpoint.counters.finished:
        raise PocketuneError(
            f"the run in {folder} is complete after {checkpoint.counters.step} steps: there is "
            "nothing to resume"
        )
    settings = checkpoint.settings
    if budget is not None:
        settings = replace(settings, budget=parse_size(budget))
    if moved is not None:
        settings = replace(settings, photos=str(Path(moved).absolute()))
    elif not Path(settings.photos).exists():
        raise PocketuneError(
            f"the photos of the run are no longer at {settings.photos}: give their new location"
        )
    photos = Photos.open(settings, kit, checkpoint.identity.classes)
    if photos.fingerprint() != checkpoint.identity.photos:
        raise PocketuneError(
            f"the photos in {settings.photos} have changed since the run in {folder} started: "
            "restore them, or start a new run"
        )
    check_budget(kit, settings, classes=len(photos.classes), before=before)
    live, optimizer = _restore(checkpoint, kit, factory)
    identity, counters = checkpoint.identity, checkpoint.counters
    return _run(folder, settings, identity, photos, live, optimizer, counters, progress)


def _begin(
    kit: Kit,
    settings: TrainSettings,
    folder: Path,
    factory: EngineFactory,
    progress: Progress | None,
) -> TrainResult:
    check_accumulation(kit, settings.accumulate)
    _check_side_lr(kit, settings)
    photos = Photos.open(settings, kit)
    if settings.patience and photos.validation is None:
        raise PocketuneError(
            f"patience={settings.patience} needs validation photos: leave it out, or set "
            "val_fraction above 0"
        )
    reclaim()
    check_budget(kit, settings, classes=len(photos.classes), before=process_memory())
    with new_run_folder(folder):
        begun, kit = kit, kit.copy_to(folder)
        make = accumulating(factory, settings.accumulate)
        # no name for the state: the engine has copied it, and a name would keep it all the time
        engine = make(kit, _starting_state(begun, photos.classes, settings.seed))
        optimizer = _create_optimizer(settings, engine)
        identity = RunIdentity(kit.identity, photos.fingerprint(), photos.classes)
        return _run(folder, settings, identity, photos, engine, optimizer, Counters(), progress)


def _run(
    folder: Path,
    settings: TrainSettings,
    identity: RunIdentity,
    photos: Photos,
    engine: Engine,
    optimizer: Optimizer,
    counters: Counters,
    progress: Progress | None,
) -> TrainResult:
    metrics = MetricsFile(folder / METRICS, keep=counters.metrics_bytes)
    shown = progress or console()
    with closing(metrics), closing(shown), StopRequest() as stop:
        recorder = Recorder(
            folder, settings, identity, metrics, shown, photos.training.batch, len(photos.training)
        )
        loop = Loop(engine, optimizer, photos.training, photos.validation, counters, recorder, stop)
        try:
            loop.run()
        except KeyboardInterrupt:  # the second Ctrl-C: an update may be half made, so do not save
            raise interrupted(folder, "stopped immediately; the last checkpoint is kept") from None
    return TrainResult(
        run=folder,
        classes=identity.classes,
        steps=counters.step,
        reason=counters.finished or "",
        best_step=counters.best_step,
        best_accuracy=counters.best_accuracy,
        best_loss=counters.best_loss,
        peak_memory=process_memory().peak,
        skipped=photos.skipped,
    )


def _onnx_engine() -> EngineFactory:
    # Imported here, for runs on another engine do not need the runtime; and before the memory
    # is looked at, for the runtime is part of it.
    from pocketune.device.engine.onnx import OnnxEngine

    return OnnxEngine


def _starting_state(kit: Kit, classes: tuple[str, ...], seed: int) -> State:
    model = Model.of(kit)
    if classes == model.classes:
        return model.state
    return with_new_classifier(model.state, kit.manifest.classifier, len(classes), seed)


def _check_side_lr(kit: Kit, settings: TrainSettings) -> None:
    names = [spec.name for spec in kit.manifest.parameters]
    if settings.side_lr is not None and not settings.rates(names):
        method = kit.manifest.method.get("name")
        raise PocketuneError(
            f"side_lr={settings.side_lr:g} has no effect: the kit's method, {method}, trains no "
            "side branches; leave it out, or use a kit of repnet or tinytl"
        )


def _create_optimizer(settings: TrainSettings, engine: Engine) -> Optimizer:
    return create_optimizer(
        settings.optimizer,
        engine.parameters,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        rates=settings.rates(engine.parameters),
    )


def _restore(checkpoint: Checkpoint, kit: Kit, factory: EngineFactory) -> tuple[Engine, Optimizer]:
    """Engine and optimizer of a checkpoint, which is emptied on the way to save its memory."""
    make = accumulating(factory, checkpoint.settings.accumulate)
    engine = make(kit, {**checkpoint.parameters, **checkpoint.statistics})
    checkpoint.parameters.clear()
    checkpoint.statistics.clear()
    optimizer = _create_optimizer(checkpoint.settings, engine)
    try:
        optimizer.load(checkpoint.optimizer, steps=checkpoint.counters.step)
    except ValueError as error:
        raise PocketuneError(f"the checkpoint does not fit its own settings: {error}") from error
    checkpoint.optimizer.clear()
    return engine, optimizer
