"""The kit that is trained where none is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pocketune.kit.bundled import bundled_kit

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT = "blocks"


def default_kit() -> Path:
    """The bundled kit that is trained where no other is named; says so."""
    print(f"training the bundled kit {DEFAULT!r}; choose another with --kit")
    return bundled_kit(DEFAULT)
