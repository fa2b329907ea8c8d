"""The state of a run: that of a new one, or of a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pocketune.device.cache.opening import FeatureCache
from pocketune.device.engine.accumulate import accumulating
from pocketune.device.train.checkpoint import Checkpoint, Counters, TrainState
from pocketune.device.train.folder import Run
from pocketune.device.train.optimizer import Optimizer, create_optimizer
from pocketune.device.train.progress import Progress
from pocketune.device.train.settings import TrainSettings
from pocketune.device.train.start import start_values
from pocketune.errors import PocketuneError
from pocketune.kit.kit import Kit

if TYPE_CHECKING:
    from pocketune.device.engine.base import Engine, EngineFactory
    from pocketune.tasks import Task


def new_state(
    run: Run, origin: Kit, factory: EngineFactory, progress: Progress, cache: FeatureCache
) -> TrainState:
    """The state of a new run, with initial values from `origin`, a kit or a run."""
    make = _engines(factory, run.settings)
    values, start = start_values(run, origin, make, progress, cache)
    if run.adjustment is not None:
        values = run.adjustment.add_to(values)
    engine = make(run.kit, values)
    del values  # the engine has copied them
    _set_inputs(engine, run.photos.task)
    counters = Counters(
        head=start.head,
        head_images=start.images,
        estimate=start.estimate,
        further=origin.is_run,
    )
    return TrainState(engine, _create_optimizer(run, engine), counters)


def restored_state(checkpoint: Checkpoint, run: Run, factory: EngineFactory) -> TrainState:
    """The state of a checkpoint, which is emptied to free its memory.

    Raises:
        PocketuneError: The checkpoint does not hold what its optimizer needs.
    """
    make = _engines(factory, run.settings)
    engine = make(run.kit, {**checkpoint.parameters, **checkpoint.statistics})
    checkpoint.parameters.clear()
    checkpoint.statistics.clear()
    _set_inputs(engine, run.photos.task)
    optimizer = _create_optimizer(run, engine)
    try:
        optimizer.load(checkpoint.optimizer, steps=checkpoint.counters.step)
    except ValueError as error:
        raise PocketuneError(f"the checkpoint does not fit its own settings: {error}") from error
    checkpoint.optimizer.clear()
    return TrainState(engine, optimizer, checkpoint.counters)


def _engines(factory: EngineFactory, settings: TrainSettings) -> EngineFactory:
    """The factory of the engines that compute a step of these settings."""
    return accumulating(factory) if settings.accumulate > 1 else factory


def _set_inputs(engine: Engine, task: Task) -> None:
    """Give an engine the step inputs of a run, such as the weights of its classes."""
    for name, value in task.step_inputs().items():
        np.copyto(engine.inputs[name], value)


def _create_optimizer(run: Run, engine: Engine) -> Optimizer:
    settings = run.settings
    return create_optimizer(
        settings.optimizer,
        engine.parameters,
        momentum=settings.sgd_momentum,
        weight_decay=settings.weight_decay,
        rates=settings.rates(run.manifest.parameters),
    )
