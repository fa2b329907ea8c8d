"""The candidates that a folder of weights gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from pocketune.errors import PocketuneError
from pocketune.methods import create_method
from pocketune.networks.config import NetworkConfig
from pocketune.networks.registry import with_published_options
from pocketune.planner.context import PlanContext
from pocketune.planner.plan import LeftOut
from pocketune.proposals.source import DraftSource
from pocketune.proposals.weights import Pretrained, find_weights


def drafts_in(
    folder: Path, networks: Sequence[str] | None, methods: Sequence[str] | None
) -> Callable[[PlanContext], DraftSource]:
    """What makes the source of candidates in a context.

    Args:
        folder: Folder of pretrained weights.
        networks: Names of networks; by default all.
        methods: Names of methods; by default a few that differ in memory.

    Raises:
        PocketuneError: The folder cannot be read, no file in it fits a network, or none one of the
            networks that are named.
    """
    pretrained, strange = find_weights(folder)
    if not pretrained:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in strange[:3]) or "it has none"
        raise PocketuneError(f"no weights of a network are in {folder} ({reasons})")
    # Large networks are looked at first: where they fit, their features are mostly better.
    chosen = sorted(_named(pretrained, networks), key=lambda one: -one.path.stat().st_size)
    left_out = [LeftOut(name=name, reason=reason) for name, reason in strange]
    return lambda context: DraftSource(context, chosen, methods or None, left_out)


def check_names(networks: Sequence[str] | None, methods: Sequence[str] | None) -> None:
    """Check names of networks and methods before anything is looked for.

    Raises:
        PocketuneError: There is no such network or method, or a name is given in place of a list.
    """
    for what, names in (("networks", networks), ("methods", methods)):
        if isinstance(names, str):
            raise PocketuneError(f"{what}={names!r} must be a list of names; give [{names!r}]")
    for name in networks or ():
        with_published_options(NetworkConfig(name))
    for name in methods or ():
        create_method(name)


def _named(pretrained: Sequence[Pretrained], names: Sequence[str] | None) -> list[Pretrained]:
    known = sorted({one.config.name for one in pretrained})
    for name in names or ():
        if name not in known:
            raise PocketuneError(
                f"there are no weights of {name!r} in the folder; there are some of "
                f"{', '.join(known)}"
            )
    return [one for one in pretrained if not names or one.config.name in names]
