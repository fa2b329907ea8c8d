"""A budget is the peak resident memory of the whole process: predicted first, then measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pocketune.device.memory.estimate import MemoryPrediction, predict_memory
from pocketune.device.memory.sizes import format_size
from pocketune.device.train.optimizer import state_slots
from pocketune.errors import PocketuneError
from pocketune.kit.bundled import list_kits
from pocketune.kit.kit import Kit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pocketune.device.memory.process import ProcessMemory
    from pocketune.device.train.settings import TrainSettings


class BudgetExceeded(PocketuneError):  # noqa: N818 - it reads as what happened
    """The process needs, or took, more memory than the budget allows."""


def check_budget(kit: Kit, settings: TrainSettings, *, classes: int, before: ProcessMemory) -> None:
    """Refuse a run that will not fit its budget, and say what would.

    Args:
        kit: The kit to train.
        settings: How; a budget of None allows everything.
        classes: Number of classes of the photos.
        before: The process with the runtime imported and nothing of the kit loaded.

    Raises:
        BudgetExceeded: The runtime alone, or the prediction, is over the budget.
    """
    budget = settings.budget_bytes
    if budget is None:
        return
    if before.peak >= budget:
        raise BudgetExceeded(
            f"the budget of {format_size(budget)} is smaller than the {format_size(before.peak)} "
            "that this process took before training began (Python, numpy and the runtime)"
        )

    def predict(batch: int | None, slots: int, kit: Kit = kit) -> MemoryPrediction:
        return predict_memory(
            kit,
            process=before.current,
            classes=classes,
            slots=slots,
            batch=batch,
            accumulate=settings.accumulate,
        )

    def fits(name: str) -> bool:
        return predict(None, slots, Kit.open(name)).total <= budget

    batch = kit.manifest.batch
    slots = state_slots(settings.optimizer, settings.sgd_momentum)
    prediction = predict(batch, slots)
    if prediction.total <= budget:
        return
    remedies = list(_remedies(predict, budget, batch, slots))
    if not remedies:
        remedies = [f"the bundled kit {name}" for name in list_kits() if fits(name)]
    advice = f"it would fit with {' or with '.join(remedies)}" if remedies else "use a smaller kit"
    raise BudgetExceeded(
        f"the budget of {format_size(budget)} is {format_size(prediction.total - budget)} short: "
        f"training needs about {format_size(prediction.total)} ({prediction}); {advice}"
    )


def _remedies(
    predict: Callable[[int, int], MemoryPrediction], budget: int, batch: int, slots: int
) -> Iterator[str]:
    """What would fit, the one that changes the training least first."""
    fitting = _largest_batch(predict, budget, batch, slots)
    if fitting:
        yield f"a kit of batch {fitting}"
    if slots > 1 and predict(batch, 1).total <= budget:
        yield "the optimizer sgd"
    elif slots and predict(batch, 0).total <= budget:
        yield "the optimizer sgd and momentum 0"
    elif slots and not fitting:
        fitting = _largest_batch(predict, budget, batch, 0)
        if fitting:
            yield f"a kit of batch {fitting}, the optimizer sgd and momentum 0"


def _largest_batch(
    predict: Callable[[int, int], MemoryPrediction], budget: int, batch: int, slots: int
) -> int:
    smaller = range(batch - 1, 0, -1)
    return next((size for size in smaller if predict(size, slots).total <= budget), 0)
