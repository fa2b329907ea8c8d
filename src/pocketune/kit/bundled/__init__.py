"""The kits that come with the package: one pretrained network, ready for three tasks.

The network is the first blocks of EfficientNet-Lite0, pretrained on ImageNet. docs/model_card.md of
the project describes it. `last` trains the output layer; `blocks` trains the top block and the
output layer. `attributes` is `last` for attributes. `masks` trains a decode head for pixels.
"""

from __future__ import annotations

import os
from pathlib import Path

from pocketune.errors import PocketuneError
from pocketune.kit.names import MANIFEST

_FOLDER = Path(__file__).parent
_KITS = {
    "classification": ("blocks", "last"),
    "attributes": ("attributes",),
    "segmentation": ("masks",),
}
"""The kits of each task, the default first."""


def list_kits(task: str | None = None) -> tuple[str, ...]:
    """Names of the bundled kits, or of those of one task, in alphabetical order."""
    tasks = _KITS if task is None else [task]
    return tuple(sorted(name for each in tasks for name in _KITS.get(each, ())))


def default_kit(task: str) -> str:
    """Name of the bundled kit that is trained on photos of a task.

    For a task without one, it is the kit for classes, which refuses the photos.
    """
    return _KITS.get(task, _KITS["classification"])[0]


def bundled_kit(name: str) -> Path:
    """The path of a bundled kit.

    Raises:
        PocketuneError: There is no bundled kit of this name.
    """
    if name not in list_kits():
        raise PocketuneError(
            f"no kit called {name!r} comes with Pocketune; choose one of {', '.join(list_kits())}"
        )
    return _FOLDER / f"{name}.zip"


def kit_path(name: str | os.PathLike[str]) -> Path:
    """The path itself; or that of the bundled kit of this name, if no kit or run is at the path."""
    path = Path(name)
    if str(name) not in list_kits() or path.is_file() or (path / MANIFEST).exists():
        return path
    return bundled_kit(str(name))
