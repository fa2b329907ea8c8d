"""The training runs that bench_memory.py measures, drawn at random by a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

CLASSES = 5
NETWORKS = {
    "mcunet_5fps": (1.0,),
    "mobilenet_v2": (0.35, 0.35, 0.5, 1.0),
    "mobilenet_v3_small": (0.5, 1.0),
    "mobilenet_v3_large": (0.35, 0.5, 1.0),
    "proxylessnas_mobile": (0.3, 0.5),
    "resnet18": (0.25, 0.5),
    "resnet34": (0.25,),
    "resnet50": (0.25,),
}
METHODS = ("last", "bias", "norm", "blocks", "mobiletl", "gradfilter", "tinytl", "full", "repnet")
METHODS += ("signed",)
WITHOUT_FROZEN = ("bias", "norm", "full", "tinytl", "repnet")
BATCHES = 1, 2, 4, 8, 16, 32, 64
SIZES = 64, 80, 96, 112, 128, 160, 192, 224
COST = {"resnet18": 1.8, "resnet34": 3.6, "resnet50": 4.1, "mobilenet_v3_small": 0.1}
SHARE = {"last": 0.5, "blocks": 1.2, "mobiletl": 1.2, "signed": 1.2, "gradfilter": 1.2, "repnet": 2}
MOST = 2.5
"""Kits that cost more are not drawn: a run takes seconds."""
PARTS = {
    "fit": (1, 45, MOST),
    "held-out": (3, 102, MOST),
    "unseen": (78, 14, MOST),
    "small": (20, 100, 0.6),
}
"""Seed, number and highest cost of the kits."""


class Row(NamedTuple):
    """A network, what of it is trained, and on what."""

    network: str
    width: float
    method: str
    batch: int
    size: int
    bits: int = 32
    backbone: str | None = None

    @property
    def name(self) -> str:
        """Of its folder."""
        return "_".join(map(str, self)).replace(", ", "-").replace(" ", "-")


class Run(NamedTuple):
    """A kit, the photos that it is trained on, and options of `pocketune train`."""

    row: Row
    photos: str
    options: tuple[str, ...]

    @property
    def label(self) -> str:
        """Its key in the results."""
        return " ".join((self.row.name, self.photos, *self.options))


MASKS = [
    Row("deeplabv3", 0.35, "last", 8, 256, 32, "mobilenet_v2"),
    Row("deeplabv3", 0.35, "blocks", 4, 256, 32, "mobilenet_v2"),
    Row("deeplabv3", 0.35, "mobiletl", 4, 176, 32, "mobilenet_v2"),
    Row("deeplabv3", 0.35, "norm", 4, 176, 32, "mobilenet_v2"),
    Row("deeplabv3", 0.35, "full", 4, 176, 32, "mobilenet_v2"),
    Row("pspnet", 0.25, "bias", 4, 128, 32, "resnet18_v1c"),
    Row("lraspp", 1.0, "blocks", 8, 224, 32, "mobilenet_v3_large"),
    Row("deeplabv3", 0.35, "5 layers, filtered", 8, 240, 32, "mobilenet_v2"),
]


def drawn(seed: int, count: int, most: float = MOST) -> list[Row]:
    """So many different kits, which cost at most so much."""
    rng, rows = random.Random(seed), list[Row]()
    while len(rows) < count:
        network = rng.choice(list(NETWORKS))
        width, method = rng.choice(NETWORKS[network]), rng.choice(METHODS)
        if method == "repnet" and not network.startswith(("mobilenet_v2", "proxyless")):
            continue
        batch, size, bits = rng.choice(BATCHES), rng.choice(SIZES), rng.choice((32, 32, 8))
        if method in WITHOUT_FROZEN:
            bits = 32
        if method == "repnet" and batch == 1 and size < 128:
            continue  # norms of one value
        row = Row(network, width, method, batch, size, bits)
        if _cost(row) <= most and row not in rows:
            rows.append(row)
    return rows


def _cost(row: Row) -> float:
    """About how long building it and a step take."""
    image = COST.get(row.network, 0.3) * max(row.width, 0.25) ** 2 * (row.size / 224) ** 2
    return row.batch * image * SHARE.get(row.method, 3) + 0.5 * row.width


def method_of(name: str, network: str) -> Any:
    """The method that a row names."""
    import pocketune

    if name not in METHODS:
        from bench_step import METHODS as CONFIGURED

        registered, options = CONFIGURED[name]
        return pocketune.create_method(registered, **options)
    if name == "signed":
        return pocketune.TopBlocks() + pocketune.SignedBackward()
    if name == "tinytl" and network == "resnet50":
        return pocketune.TinyTL(lite_residual=False)  # the modules would outgrow the network
    return pocketune.create_method(name)


def runs(part: str) -> Iterator[Run]:
    """The runs of a part, two of each kit."""
    if part == "masks":
        for row in MASKS:
            yield Run(row, "masks", ("--optimizer", "adam", "--epochs", "1"))
        return
    seed, *limits = PARTS[part]
    rng = random.Random(seed + 1000)
    for row in drawn(seed, *limits):
        for _ in range(2):
            yield _run(row, rng)


def _run(row: Row, rng: random.Random) -> Run:
    photos = rng.choice(("small", "camera", "camera", "large", "png"))
    optimizer = rng.choice(("adam", "adam", "sgd", "sgd without momentum"))
    options = ["--optimizer", optimizer[:4].strip()]
    if optimizer != "adam":
        options += ["--momentum", ".9" if optimizer == "sgd" else "0"]
    if row.method in ("last", "tinytl", "bias") and row.batch <= 8 and rng.random() < 0.3:
        options += ["--accumulate", rng.choice(("2", "4"))]
    if row.method not in WITHOUT_FROZEN:
        options += ["--cache", rng.choice(("off", "disk", "memory"))]
    if rng.random() < 0.3:
        options += ["--head-start", "random"]
    options += ["--epochs", rng.choice(("1", "2"))] if row.batch > 4 else ["--steps", "12"]
    if row.method == "last" and photos in ("small", "png") and row not in drawn(*PARTS["fit"]):
        photos = "many"
    return Run(row, photos, tuple(options))
