"""Kits as users name them: by a path, or by the name of one that comes with Pocketune."""

from __future__ import annotations

from pathlib import Path

from pocketune.kits import bundled_kit, list_kits

DEFAULT = "blocks"


def kit_path(name: str) -> Path:
    """The path itself, or the bundled kit of this name where there is nothing at the path."""
    path = Path(name)
    return bundled_kit(name) if name in list_kits() and not path.exists() else path


def default_kit() -> Path:
    """The bundled kit that is trained where no other is named; says so."""
    print(f"training the network that comes with Pocketune (the kit {DEFAULT!r}); see --kit")
    return bundled_kit(DEFAULT)
