"""Files that were left out, counted and listed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pocketune.data import Skipped

_LISTED = 20


def print_left_out(skipped: Sequence[Skipped]) -> None:
    """Print how many files were left out, and the first of them with the reasons."""
    if not skipped:
        return
    print(f"{len(skipped)} file{'s' * (len(skipped) > 1)} skipped:")
    for file in skipped[:_LISTED]:
        print(f"  {file.name}: {file.reason}")
    if len(skipped) > _LISTED:
        print(f"  and {len(skipped) - _LISTED} more")
