"""Refuse settings that would have no effect on a run, or another one than they promise."""

from __future__ import annotations

from pocketune.device.train.adjustment import Adjustment
from pocketune.device.train.defaults import kind_of
from pocketune.device.train.photos import Photos, is_linear
from pocketune.device.train.settings import TrainSettings
from pocketune.errors import PocketuneError, counted
from pocketune.kit.kit import Kit


def check_patience(photos: Photos, settings: TrainSettings) -> None:
    """Refuse `patience` without steps or without validation photos.

    Raises:
        PocketuneError: The run makes no steps, or has no validation photos.
    """
    if settings.patience and settings.epochs == 0:
        raise PocketuneError(
            f"patience={settings.patience} has no effect with epochs=0, which makes no steps: "
            "leave it out"
        )
    if settings.patience and photos.validation is None:
        raise PocketuneError(
            f"patience={settings.patience} needs validation photos: leave it out, or set "
            "val_fraction above 0"
        )


def check_warmup(photos: Photos, settings: TrainSettings) -> None:
    """Refuse a warm-up that leaves no step at the peak rate.

    Raises:
        PocketuneError: It is as long as the run.
    """
    steps = settings.total_steps(len(photos.training))
    if settings.warmup >= steps > 0:
        raise PocketuneError(
            f"warmup={settings.warmup:,} is as long as the run of {counted(steps, 'step')}, whose "
            "rate would never reach its peak: give fewer, or more epochs"
        )


def check_balance(photos: Photos, settings: TrainSettings, kit: Kit) -> None:
    """Refuse `balance` where no bias holds the frequencies of exclusive classes.

    Raises:
        PocketuneError: The task or the kit has no such bias.
    """
    if not settings.balance:
        return
    what = ""
    if photos.task.dense:
        what = "it weighs photos, and class_weights weighs the classes of pixels"
    elif Adjustment.of(photos.splits.train, photos.task, settings.balance) is None:
        what = f"the task {photos.task.name} has no classes that exclude each other"
    elif not is_linear(kit.manifest):
        what = "the kit's output layer has no bias that could hold the classes' frequencies"
    if what:
        raise PocketuneError(f"balance={settings.balance:g} has no effect: {what}; leave it out")


def check_rates(kit: Kit, settings: TrainSettings) -> None:
    """Refuse a rate of parameters that the kit does not train.

    Raises:
        PocketuneError: The kit trains no such parameters.
    """
    kinds = {kind_of(spec) for spec in kit.manifest.parameters}
    method = kit.manifest.method_name
    for kind, what, others in (
        ("side", "side branches", "repnet or tinytl"),
        ("decode", "decode head", "blocks or full, for masks"),
        ("bias", "biases or norms of the network", "bias, norm, blocks or full"),
    ):
        rate = getattr(settings, f"{kind}_lr")
        if rate is not None and kind not in kinds:
            raise PocketuneError(
                f"{kind}_lr={rate:g} has no effect: the kit's method, {method}, trains no {what}; "
                f"leave it out, or use a kit of {others}"
            )


def check_accumulation(kit: Kit, parts: int) -> None:
    """Refuse accumulation if it would not compute the gradient of the whole batch.

    Raises:
        PocketuneError: The kit's norms use batch statistics, which would be those of a part.
    """
    if parts > 1 and kit.manifest.statistics:
        raise PocketuneError(
            f"accumulate={parts} cannot replace a larger batch, because this kit's norms use batch "
            "statistics: use a kit with a larger batch, or with a method that uses running "
            "statistics, such as tinytl"
        )
