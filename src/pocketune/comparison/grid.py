"""What is compared: sets of photos, networks with methods, kits, seeds and settings."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pocketune.device.train.settings import TrainSettings
from pocketune.errors import PocketuneError
from pocketune.files import reading, regular, stem_of
from pocketune.kit.titles import full_title, network_title
from pocketune.schema import Positive, read_object

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from pocketune.arrays import StrPath

Part = TypeVar("Part", "Grid", "PhotoSet", "Network", "MethodChoice", "KitChoice")
"""What has settings of its own."""


@dataclass(frozen=True, kw_only=True)
class PhotoSet:
    """A set of labeled photos.

    Attributes:
        photos: A folder, a CSV or a .zip; see `pocketune.train`.
        name: Its name in the tables; by default that of the folder or file.
        settings: Settings of `pocketune.train` for this set.
    """

    photos: str
    name: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The name in the tables."""
        return self.name or stem_of(self.photos)


@dataclass(frozen=True, kw_only=True)
class Network:
    """A network; see `pocketune.create_network`.

    Attributes:
        network: Its name, or an `.onnx` file.
        name: Its name in the tables.
        weights: A file of weights, or `imagenet`; None for random ones.
        width: Width multiplier; None follows the weights.
        padding: Padding of strided convolutions.
        backbone: Backbone of a network that classifies pixels; None follows the weights, and is
            otherwise the published one.
        head_channels: Channels of its decode head; None likewise.
        output_stride: Side of the image over that of its last map; None likewise.
        first_blocks: How many blocks to keep; None for all.
        norm: Norm of every layer; None follows the weights.
        standardized: Whether kernels are standardized; None follows the weights.
        size: Height and width of the images.
        batch: Images in a step.
        settings: Settings of `pocketune.train` for this network.
    """

    network: str
    name: str | None = None
    weights: str | None = None
    width: float | None = None
    padding: str | None = None
    backbone: str | None = None
    head_channels: int | None = None
    output_stride: int | None = None
    first_blocks: int | None = None
    norm: str | None = None
    standardized: bool | None = None
    size: Positive = 224
    batch: Positive = 8
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def is_file(self) -> bool:
        """Whether it is read from an `.onnx` file, with its weights."""
        return Path(self.network).suffix == ".onnx"

    @property
    def label(self) -> str:
        """The name in the tables."""
        name = Path(self.network).name if self.is_file else self.network
        return self.name or network_title({**asdict(self), "name": name})


@dataclass(frozen=True, kw_only=True)
class MethodChoice:
    """A method, or the sum of several; see `pocketune.create_method`.

    Attributes:
        method: Its name, such as `blocks` or `blocks+signed`.
        name: Its name in the tables.
        options: Its options by name.
        frozen_bits: Bits of the frozen layers, 8 or 32; None for the method's own choice.
        label_smoothing: Amount of label smoothing.
        loss_stride: Rows and columns of masks between those that the loss is taken at.
        settings: Settings of `pocketune.train` for this method.
    """

    method: str
    name: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    frozen_bits: int | None = None
    label_smoothing: float = 0.0
    loss_stride: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The name in the tables."""
        return self.name or full_title({"name": self.method, **self.options})


@dataclass(frozen=True, kw_only=True)
class KitChoice:
    """A finished kit, whose network and method are fixed.

    Attributes:
        kit: A folder, a .zip or the name of a bundled kit.
        name: Its name in the tables.
        settings: Settings of `pocketune.train` for this kit.
    """

    kit: str
    name: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The name in the tables."""
        return self.name or stem_of(self.kit)


@dataclass(frozen=True, kw_only=True)
class Grid:
    """All runs of a comparison: each network with each method, and each kit, on each set of photos.

    Settings of a method take precedence over those of a network or kit, these over those of the
    photos, and these over those of the grid.

    Attributes:
        photos: The sets of photos.
        networks: The networks.
        methods: The methods that each network is trained with.
        kits: Finished kits.
        seeds: The seeds of each row.
        settings: Settings of `pocketune.train` for all runs.
        rates: Learning rates to choose from, for each set, model and method.
        head_rates: Learning rates of the classifier to choose from.

    Raises:
        PocketuneError: Something is missing, named twice or not a setting; the message names it.
    """

    photos: tuple[PhotoSet, ...]
    networks: tuple[Network, ...] = ()
    methods: tuple[MethodChoice, ...] = ()
    kits: tuple[KitChoice, ...] = ()
    seeds: tuple[int, ...] = (0,)
    settings: dict[str, Any] = field(default_factory=dict)
    rates: tuple[float, ...] = ()
    head_rates: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        _check_complete(self)
        _check_rates(self)
        _check_names(each.label for each in self.photos)
        _check_names(each.label for each in self.models)
        _check_names(each.label for each in self.methods)
        if len(set(self.seeds)) < len(self.seeds):
            raise PocketuneError(f"seeds={list(self.seeds)} has a seed twice; give each once")
        chosen = (self.photos, self.networks, self.methods, self.kits)
        for settings in (self.settings, *(each.settings for group in chosen for each in group)):
            _check_settings(settings)

    @property
    def models(self) -> tuple[Network | KitChoice, ...]:
        """The networks and the kits."""
        return (*self.networks, *self.kits)

    def to_dict(self) -> dict[str, Any]:
        """All fields, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str = "the grid") -> Grid:
        """A grid from plain values, as a TOML file holds them.

        A name alone stands for a photo set, network, method or kit without further fields; a number
        of `seeds` for the first ones.

        Raises:
            PocketuneError: A field is unknown, missing or of the wrong type.
        """
        values = {**_defaults(cls), **data}
        for name, (kind, first) in _LISTS.items():
            if isinstance(values.get(name), str):
                values[name] = [values[name]]
            if isinstance(values.get(name), list | tuple):
                values[name] = [_filled(kind, first, each) for each in values[name]]
        if type(values["seeds"]) is int:
            values["seeds"] = list(range(values["seeds"]))
        for name in ("seeds", "rates", "head_rates"):
            if isinstance(values[name], tuple):
                values[name] = list(values[name])
        return read_object(cls, values, where)

    @classmethod
    def read(cls, path: StrPath) -> Grid:
        """A grid from a TOML file. Paths in it are relative to its folder.

        Raises:
            PocketuneError: The file cannot be read, is not TOML, or does not describe a grid.
        """
        path = Path(path)
        with reading(path, tomllib.TOMLDecodeError, UnicodeDecodeError):
            data = tomllib.loads(regular(path).read_text(encoding="utf-8"))
        return cls.from_dict(data, str(path)).below(path.parent)

    def below(self, folder: Path) -> Grid:
        """The same grid with the relative paths that exist below `folder` found there."""

        def found(path: str) -> str:
            return str(folder / path) if (folder / path).exists() else path

        def settled(part: Part) -> Part:
            names = part.settings.get("class_names")
            changed = {} if names is None else {"class_names": found(names)}
            return replace(part, settings={**part.settings, **changed})

        return replace(
            settled(self),
            photos=tuple(settled(replace(each, photos=found(each.photos))) for each in self.photos),
            methods=tuple(map(settled, self.methods)),
            kits=tuple(settled(replace(each, kit=found(each.kit))) for each in self.kits),
            networks=tuple(
                replace(
                    settled(each),
                    network=found(each.network) if each.is_file else each.network,
                    weights=each.weights and found(each.weights),
                )
                for each in self.networks
            ),
        )


_LISTS = {
    "photos": (PhotoSet, "photos"),
    "networks": (Network, "network"),
    "methods": (MethodChoice, "method"),
    "kits": (KitChoice, "kit"),
}
"""The lists of a grid, with the field that a name alone stands for."""


def _filled(kind: type, first: str, value: object) -> object:
    if isinstance(value, str):
        value = {first: value}
    return {**_defaults(kind), **value} if isinstance(value, Mapping) else value


def _defaults(kind: type) -> dict[str, Any]:
    """The defaults of a dataclass as plain values."""
    made: dict[str, Any] = {}
    for each in fields(kind):
        if each.default_factory is not MISSING:
            made[each.name] = each.default_factory()
        elif each.default is not MISSING:
            made[each.name] = list(each.default) if type(each.default) is tuple else each.default
    return made


def _check_names(names: Iterable[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise PocketuneError(
            f"two parts of a comparison are called {twice[0]!r}: list them in a .toml file, each "
            "with a name of its own"
        )


def _check_complete(grid: Grid) -> None:
    problems: Iterable[tuple[bool, str]] = (
        (not grid.photos, "photos to train on"),
        (not grid.networks and not grid.kits, "a network or a kit"),
        (bool(grid.networks) and not grid.methods, "a method for its networks"),
        (bool(grid.methods) and not grid.networks, "a network for its methods"),
        (not grid.seeds, "a seed"),
    )
    for is_missing, what in problems:
        if is_missing:
            raise PocketuneError(f"the comparison lacks {what}")


def _check_rates(grid: Grid) -> None:
    """Check the rates to choose from; a rate that is chosen is not given."""
    parts = (grid, *grid.photos, *grid.models, *grid.methods)
    for name, rate in (("rates", "lr"), ("head_rates", "head_lr")):
        if any(each <= 0 for each in getattr(grid, name)):
            raise PocketuneError(f"{name} must be above 0")
        if getattr(grid, name) and any(part.settings.get(rate) is not None for part in parts):
            raise PocketuneError(f"{rate} is given, and {name} to choose it from: leave one out")


def _check_settings(settings: Mapping[str, Any]) -> None:
    """Check settings of `pocketune.train`, of which the comparison chooses some."""
    known = {each.name for each in fields(TrainSettings)}
    for name in settings:
        if name == "seed":
            raise PocketuneError(f"the setting {name} is chosen by the comparison: leave it out")
        if name not in known:
            names = ", ".join(map(repr, sorted(known)))  # as they stand in a file
            raise PocketuneError(f"there is no setting {name!r}: choose from {names}")
    TrainSettings(**settings)
