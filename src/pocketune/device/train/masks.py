"""How masks are read by a run that goes on with another one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pocketune.data import MaskOptions
from pocketune.kit.names import LAST
from pocketune.kit.tensors import read_tensors

if TYPE_CHECKING:
    from pocketune.kit.kit import Kit


def masks_of(kit: Kit, given: MaskOptions) -> MaskOptions:
    """The given options, and for those that are not given the ones of the run that a kit is.

    The other photos may lack a class that the run has ignored.

    A checkpoint of another version will do: only these two settings are read.

    Raises:
        PocketuneError: The run's checkpoint is damaged.
    """
    last = kit.find(LAST)
    if last is None:
        return given
    _, metadata = read_tensors(last, kind="checkpoint", codes=True, only=())
    own = metadata.get("settings", {})
    return MaskOptions(
        ignore=given.ignore or own.get("ignore"),
        class_names=given.class_names or own.get("class_names"),
        inherited=given.ignore is None,
    )
