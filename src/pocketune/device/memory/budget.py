"""Check that a run will fit its budget, the peak resident memory of the whole process."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pocketune.data import checked
from pocketune.data.images.cost import HEAVY_BYTES
from pocketune.device.memory.addresses import check_addresses, kit_addresses
from pocketune.device.memory.estimate import MemoryEstimate, estimate_memory, estimate_prediction
from pocketune.device.memory.process import granted_bytes, process_memory, reclaim
from pocketune.device.memory.sizes import format_size, parse_size
from pocketune.device.train.optimizer import state_slots
from pocketune.errors import PocketuneError
from pocketune.files import shown
from pocketune.heap import save_memory
from pocketune.kit.bundled import list_kits
from pocketune.kit.kit import Kit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pocketune.data import ImageDataset
    from pocketune.data.images.cost import Decoding, Use
    from pocketune.device.memory.process import ProcessMemory
    from pocketune.device.train.settings import TrainSettings
    from pocketune.device.use.model import Model

_USUAL_BYTES = 100_000_000
"""Above this, a process holds more than Python, numpy and the runtime."""
_OTHER_PROCESS = "use a process of its own, or give a larger budget"


class BudgetExceeded(PocketuneError):  # noqa: N818 - the name says what happened
    """The process needs or took more memory than the budget allows."""


def check_budget(
    kit: Kit,
    settings: TrainSettings,
    *,
    classes: int,
    images: int,
    before: ProcessMemory,
    decoding: Decoding | None = None,
) -> MemoryEstimate:
    """Refuse a run that will not fit its budget, and name changes that would fit.

    Args:
        kit: The kit to train.
        settings: Settings of the run; a budget of None allows everything.
        classes: Number of classes of the photos.
        images: Number of training photos.
        before: Memory of the process after importing the runtime and before loading the kit.
        decoding: What decoding the photos takes, if it is known.

    Returns:
        The memory that the run will take until it describes its classes.

    Raises:
        BudgetExceeded: The runtime alone, or the estimate, exceeds the budget; or the system would
            end the process.
    """
    budget = settings.budget_bytes
    computes = settings.head_start != "random"
    run = _Run(
        kit, budget or 0, before.current, classes, settings.accumulate, computes, images, decoding
    )
    slots = state_slots(settings.optimizer, settings.sgd_momentum)
    estimate = run.estimate(slots)
    head = run.estimate(slots, images=images if computes else None).head
    more = estimate.total - before.current
    check_addresses(kit_addresses(more, estimate.activations), "training")
    fits = budget is None or estimate.total <= budget
    if budget is not None:
        # First, since opening a photo of much metadata may have exceeded the budget already.
        if not fits and decoding is not None and decoding.most > HEAVY_BYTES:
            _refuse_photo(decoding, replace(run, decoding=None).estimate(slots), estimate, budget)
        _check_before(before, budget, f"training needs about {format_size(estimate.total)}")
        if not fits:
            needed = f"training needs about {format_size(estimate.total)} ({estimate})"
            raise BudgetExceeded(f"{_short(estimate, budget)}: {needed}; {run.advice(slots)}")
    if (granted := granted_bytes()) is not None and estimate.total > granted:
        run = replace(run, budget=granted)
        raise BudgetExceeded(f"{_ended(estimate, granted, 'training')}; {run.advice(slots)}")
    # Where all photos do not fit, the classifier is of fewer.
    return replace(estimate, head=head).within(budget)


def limited(budget: int | str | None) -> tuple[int | None, ProcessMemory]:
    """Bytes of a budget, and the memory of this process before it opens a model."""
    save_memory()
    reclaim()
    return None if budget is None else parse_size(budget), process_memory()


def decoding_room(budget: int) -> int:
    """Bytes that a budget leaves this process for decoding photos.

    Raises:
        BudgetExceeded: It has taken more before.
    """
    _, before = limited(budget)
    _check_before(before, budget)
    return budget - before.current


def check_prediction(
    model: Model,
    budget: int | None,
    before: ProcessMemory,
    decoding: Decoding | None = None,
    images: ImageDataset | None = None,
    use: Use | None = None,
) -> None:
    """Refuse to predict or evaluate where that will not fit a budget, as `check_budget` does.

    Args:
        model: The model.
        budget: Bytes that the process may take; None for no limit.
        before: Memory of the process before the model was opened.
        decoding: What decoding the photos takes, if it is known.
        images: The photos in the order of their batches, where that is known.
        use: What is done with each photo beside predicting it.

    Raises:
        BudgetExceeded: The runtime alone, or the estimate, exceeds the budget; or the system would
            end the process.
    """
    granted = granted_bytes()
    if (limit := _smaller(budget, granted)) is None:
        return
    manifest, classes = model.kit.manifest, len(model.classes)
    estimate, without = (
        estimate_prediction(manifest, process=before.current, classes=classes, decoding=each)
        for each in (decoding, None)
    )
    if budget is not None:
        _check_before(before, budget, f"predicting needs about {format_size(estimate.total)}")
    if estimate.total <= limit:
        return
    if decoding is not None and decoding.most > HEAVY_BYTES:
        if images is not None and _in_batches(model, before, images, use).total <= limit:
            return
        if budget is not None:
            _refuse_photo(decoding, without, estimate, budget)
        if granted is not None and estimate.total > granted >= without.total:
            ended = _ended(estimate, granted, "predicting")
            raise BudgetExceeded(f"{ended}; {heaviest_photo(decoding)}")
    if budget is not None and estimate.total > budget:
        needed = f"predicting needs about {format_size(estimate.total)} ({estimate})"
        raise BudgetExceeded(f"{_short(estimate, budget)}: {needed}; use a smaller kit")
    raise BudgetExceeded(f"{_ended(estimate, limit, 'predicting')}; use a smaller kit")


def _in_batches(
    model: Model, before: ProcessMemory, images: ImageDataset, use: Use | None
) -> MemoryEstimate:
    """The estimate of a prediction whose first batch is decoded before the graphs are opened."""
    manifest, places = model.kit.manifest, range(len(images))
    first, rest = (
        checked(images.subset(part), manifest.size, use=use).decoding
        for part in (places[: manifest.batch], places[manifest.batch :])
    )
    return estimate_prediction(
        manifest, process=before.current, classes=len(model.classes), decoding=rest, first=first
    )


def check_peak(budget: int | None) -> None:
    """Stop a process that has exceeded its budget.

    Raises:
        BudgetExceeded: It has.
    """
    peak = process_memory().peak
    if budget is not None and peak > budget:
        raise BudgetExceeded(
            f"memory reached {format_size(peak)}, over the budget of {format_size(budget)}: give a "
            "larger budget, or save large photos smaller"
        )


def _smaller(budget: int | None, granted: int | None) -> int | None:
    limits = [limit for limit in (budget, granted) if limit is not None]
    return min(limits, default=None)


def _short(estimate: MemoryEstimate, budget: int) -> str:
    short = format_size(estimate.total - budget)
    return f"the budget of {format_size(budget)} is {short} short"


def _ended(estimate: MemoryEstimate, granted: int, what: str) -> str:
    """Says that the system would end a process without a word."""
    return (
        f"the limit of this process's control group is {format_size(estimate.total - granted)} "
        f"short, and the system ends what exceeds it: {what} needs about "
        f"{format_size(estimate.total)} ({estimate}); raise the limit"
    )


def _check_before(before: ProcessMemory, budget: int, needed: str = "") -> None:
    """Refuse a budget that is exceeded before anything is opened.

    Args:
        before: Memory of the process by then.
        budget: Bytes that it may take.
        needed: What the whole run needs, in words, if it is known.
    """
    if before.peak < budget:
        return
    took = f"the {format_size(before.peak)} that this process took before it began"
    if "torch" in sys.modules:
        held = "Python, PyTorch and the runtime"
        remedy = "use another process, which does not import PyTorch"
    elif before.peak <= _USUAL_BYTES:
        held = "Python, numpy and the runtime"
        remedy = f"give a larger budget: {needed}" if needed else "give a larger budget"
    elif before.current < budget:
        held, remedy = f"at its peak; {format_size(before.current)} now", _OTHER_PROCESS
    else:
        held, remedy = "Python, the runtime and the rest of the program", _OTHER_PROCESS
    raise BudgetExceeded(
        f"the budget of {format_size(budget)} is smaller than {took} ({held}); {remedy}"
    )


def _refuse_photo(
    decoding: Decoding, without: MemoryEstimate, estimate: MemoryEstimate, budget: int
) -> None:
    """Refuse a run that would fit if it were not for its photos."""
    if without.total > budget:
        return
    raise BudgetExceeded(f"{_short(estimate, budget)}: {heaviest_photo(decoding)}")


def heaviest_photo(decoding: Decoding) -> str:
    """The photo that takes most memory to decode, and what to do about it."""
    header = decoding.header
    return (
        f"decoding {shown(decoding.name)} ({header.format}, {header.width} x {header.height}) "
        f"takes about {format_size(decoding.most)}; write small copies of all photos with "
        "pocketune prepare, or leave out the largest with max_pixels"
    )


@dataclass(frozen=True)
class _Run:
    """A run, for estimates with other batches, optimizers and kits."""

    kit: Kit
    budget: int
    process: int
    classes: int
    accumulate: int
    computes: bool
    photos: int
    decoding: Decoding | None = None

    def estimate(
        self,
        slots: float,
        *,
        batch: int | None = None,
        kit: Kit | None = None,
        images: int | None = None,
    ) -> MemoryEstimate:
        return estimate_memory(
            (kit or self.kit).manifest,
            process=self.process,
            classes=self.classes,
            slots=slots,
            batch=batch,
            accumulate=self.accumulate,
            images=images,
            refits=self.computes,
            trained=self.kit.is_run,
            photos=self.photos,
            decoding=self.decoding,
        )

    def fits(self, slots: float, *, batch: int | None = None, kit: Kit | None = None) -> bool:
        return self.estimate(slots, batch=batch, kit=kit).total <= self.budget

    def advice(self, slots: float) -> str:
        """What to do where the run does not fit."""
        remedies = list(self.remedies(slots)) or list(self.bundled_kits(slots))
        if remedies:
            return f"it would fit with {' or with '.join(remedies)}"
        return "use a kit of smaller images or batches, or of another method"

    def remedies(self, slots: float) -> Iterator[str]:
        """Changes with which the run would fit, the one that changes training least first."""
        fitting = self._largest_batch(slots)
        if fitting:
            yield f"a kit of batch {fitting}"
        coded = state_slots("adam8", 0)
        if slots > coded and self.fits(coded):
            yield "the optimizer adam8"
        elif slots and self.fits(0):
            yield "the optimizer sgd and momentum 0"
        elif slots and not fitting:
            fitting = self._largest_batch(0)
            if fitting:
                yield f"a kit of batch {fitting}, the optimizer sgd and momentum 0"

    def bundled_kits(self, slots: float) -> Iterator[str]:
        """The bundled kits with which the run would fit."""
        for name in list_kits(self.kit.manifest.task.name):
            if self.fits(slots, kit=Kit.open(name)):
                yield f"the bundled kit {name}"

    def _largest_batch(self, slots: float) -> int:
        """The largest batch below the kit's with which the run would fit; 0 if there is none."""
        smaller = range(self.kit.manifest.batch - 1, 0, -1)
        return next((batch for batch in smaller if self.fits(slots, batch=batch)), 0)
