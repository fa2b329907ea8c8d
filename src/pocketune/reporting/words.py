"""Configurations and figures in words."""

from __future__ import annotations

import math
import shlex
from contextlib import suppress
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from pocketune.device.memory.sizes import format_size
from pocketune.device.train.settings import TrainSettings
from pocketune.errors import PocketuneError
from pocketune.files import shown
from pocketune.kit.bundled import list_kits
from pocketune.kit.kit import Kit
from pocketune.options import flag
from pocketune.tasks import task_named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pocketune.device.train.record import RunRecord
    from pocketune.tasks import Score

_LISTED = 6


def duration(seconds: float) -> str:
    """Seconds in the units that people use.

    >>> duration(0.0421), duration(75), duration(7260)
    ('42 ms', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 0.00995:  # such as a step on kept features
        return f"{seconds * 1000:.2g} ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    if minutes:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{rest} s"


def listing(names: Sequence[str]) -> str:
    """The first names, and how many others there are.

    >>> listing(["cat", "dog"])
    'cat and dog'
    """
    some = [shown(name, 40) for name in names[:_LISTED]]
    if len(names) > _LISTED:
        return f"{', '.join(some)} and {len(names) - _LISTED:,} others"
    return " and ".join(filter(None, (", ".join(some[:-1]), *some[-1:])))


def gain(start: Score, best: Score) -> str:
    """What training has changed.

    >>> from pocketune.tasks import Score
    >>> gain(Score("accuracy", 0.5, 1.0), Score("accuracy", 0.75, 0.5))
    'Before training it was 50.0%, so training changed it by +25.0 points.'
    """
    before = f"Before training it was {start.value:{start.style}}"
    if (start.value, start.loss) == (best.value, best.loss):
        return f"{before}, and no step was better: the result is the start itself."
    change = best.value - start.value
    if start.style.endswith("%"):
        return f"{before}, so training changed it by {100 * change:+.1f} points."
    return f"{before}, so training changed it by {change:+.3g}."


def interval(share: float, photos: int) -> tuple[float, float]:
    """The 95 % interval of a share of independent photos (Wilson, 1927).

    >>> low, high = interval(1.0, 15)
    >>> f"{low:.3f} to {high:.3f}"
    '0.796 to 1.000'
    """
    z = 1.96
    center = share + z * z / (2 * photos)
    spread = z * math.sqrt(share * (1 - share) / photos + z * z / (4 * photos * photos))
    whole = 1 + z * z / photos
    return (center - spread) / whole, (center + spread) / whole


def command(record: RunRecord, *, further: bool) -> str:
    """The command that repeats a run, with the options that its settings need.

    Args:
        record: The record of the run.
        further: Whether it began with the values of another run.
    """
    kit = next((name for name in list_kits() if Kit.open(name).identity == record.kit), "KIT")
    words = ["pocketune", "train", record.photos.name, "--kit", "RUN" if further else kit]
    for name, value in _needed(record, further=further).items():
        words += [flag(name), *([] if value is True else [_value(name, value)])]
    return shlex.join(words)


def _needed(record: RunRecord, *, further: bool) -> dict[str, Any]:
    """The settings without those that follow from the others or are defaults."""

    def filled_in(settings: TrainSettings) -> TrainSettings:
        if further and settings.decode_lr is None:
            settings = replace(settings, decode_lr=settings.peak_rates(record.batch).main)
        per_epoch = max(1, record.photos.training // record.batch)
        return settings.resolved(
            images=record.batch,
            steps_per_epoch=per_epoch,
            validation=record.photos.validation,
            photos=None if task_named(record.task).dense else record.photos.training,
            imbalance=record.photos.imbalance,
        )

    settings = TrainSettings.from_dict(record.settings)
    for field in fields(settings):
        with suppress(PocketuneError):  # some settings need others
            default: dict[str, Any] = {field.name: field.default}
            simpler = replace(settings, **default)
            settings = simpler if filled_in(simpler) == filled_in(settings) else settings
    pairs = ((field, getattr(settings, field.name)) for field in fields(settings))
    return {field.name: value for field, value in pairs if value != field.default}


def setting(value: Any) -> str:
    """A setting in words.

    >>> setting(0.0007071067811865476), setting(False), setting("adam")
    ('0.000707', 'no', 'adam')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _value(name: str, value: Any) -> str:
    if name == "budget" and value % 1_000_000 == 0:
        return f"{value // 1_000_000}MB"
    return str(value)


def below_budget(peak: int, budget: int | None) -> str:
    """How a peak compares to the budget."""
    if budget is None:
        return "without a budget"
    apart = format_size(abs(budget - peak))
    return f"{apart} {'below' if peak <= budget else 'above'} the budget of {format_size(budget)}"
