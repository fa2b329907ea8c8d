"""Find the network that a file of weights belongs to, by the shapes of its tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pocketune.errors import PocketuneError
from pocketune.files import reading
from pocketune.networks import list_networks
from pocketune.networks.config import PADDINGS, NetworkConfig
from pocketune.weights.create import create_network
from pocketune.weights.describe import describe_network
from pocketune.weights.formats.files import PICKLED
from pocketune.weights.formats.folded import published_name
from pocketune.weights.formats.int8 import INT8
from pocketune.weights.saved import read_description
from pocketune.weights.width import WIDTHS, kernels_in, kernels_of

SUFFIXES = (".safetensors", *PICKLED, INT8)
"""Kinds of files in the order of preference: where a network has a `.float32.safetensors` and an
`.int8.npz` of one name, the first is taken."""

DOWNLOADS = "hf-hub/*/*/model.safetensors"
"""Where files from the hub are below the folder of torch.hub's downloads."""


@dataclass(frozen=True)
class Pretrained:
    """A file of weights, and the network that it fits.

    Attributes:
        path: The file.
        config: The network.
    """

    path: Path
    config: NetworkConfig

    @property
    def frozen_bits(self) -> int | None:
        """8 for weights that were published in 8 bits, which stay so."""
        return 8 if self.path.suffix == INT8 else None


def find_weights(folder: Path) -> tuple[list[Pretrained], list[tuple[str, str]]]:
    """The networks whose weights are in a folder; and files that are left out, with the reason.

    Downloads from the Hugging Face hub are in folders of their own below it.

    Raises:
        PocketuneError: The folder cannot be read.
    """
    with reading(f"the folder of weights {folder}", remedy="give a folder of weights"):
        files = [path for path in folder.iterdir() if path.suffix in SUFFIXES]
        files += folder.glob(DOWNLOADS)
    found: dict[str, Pretrained] = {}
    strange: list[tuple[str, str]] = []
    for path in sorted(files, key=lambda path: (SUFFIXES.index(path.suffix), title_of(path))):
        try:
            one = match_weights(path)
        except PocketuneError as error:
            strange.append((title_of(path), _reason(error, path)))
            continue
        title = published_name(path) if path.parent == folder else title_of(path)
        first = found.setdefault(f"{title} {one.config}", one)
        if first is not one:
            strange.append((title_of(path), f"{title_of(first.path)} has the same network"))
    return list(found.values()), strange


def title_of(path: Path) -> str:
    """The name of a file of weights; of a download from the hub, that of its repository."""
    return path.parent.name if path.name == Path(DOWNLOADS).name else path.name


def _reason(error: PocketuneError, path: Path) -> str:
    """The message of an error to be put after the name of its file."""
    for name in (str(path), path.name):
        if error.message.startswith(f"{name} "):
            return f"it{error.message.removeprefix(name)}"
    return error.message


def match_weights(path: Path) -> Pretrained:
    """The network that a file fits.

    The header of a file of `save_network` says it. For any other, the kernels of each network are
    compared with the file's, and the weights are loaded into the first network that has the same.

    Raises:
        PocketuneError: The file is damaged, or fits no network.
    """
    recorded = read_description(path)
    if recorded is not None:
        return Pretrained(path, recorded[0])
    kernels = kernels_in(path)
    reason = "its tensors fit no network that Pocketune knows"
    for name, width in _alike(kernels.total()):
        if kernels_of(describe_network(name, weights=path, width=width)) != kernels:
            continue
        for padding in PADDINGS:
            try:
                create_network(name, weights=path, width=width, padding=padding)
            except PocketuneError as error:
                reason = error.message
            else:
                config = describe_network(name, weights=path, width=width, padding=padding)
                return Pretrained(path, config)
    raise PocketuneError(reason)


def _alike(count: int) -> Iterator[tuple[str, float]]:
    """Names and widths of networks with so many kernels; with or without feature fusion."""
    for name in list_networks(dense=False):
        kernels = kernels_of(NetworkConfig(name)).total()
        if count in (kernels, kernels - 1):
            yield from ((name, width) for width in WIDTHS if _exists(name, width))


def _exists(name: str, width: float) -> bool:
    try:
        kernels_of(NetworkConfig(name, width=width))
    except PocketuneError:  # it exists at width 1 only
        return False
    return True
