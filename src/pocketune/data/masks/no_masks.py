"""The error that tells what only looks like masks from masks that are damaged or missing."""

from __future__ import annotations

from pocketune.errors import PocketuneError


class NoMasks(PocketuneError):  # noqa: N818 - the name says what is missing
    """Files lie where masks or outlines do, and are evidently none."""
