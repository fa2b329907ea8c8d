"""Candidates from networks: predicted from shapes, ranked by features, built when tried."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pocketune
from pocketune.authoring import build_kit
from pocketune.device.memory.sizes import format_size
from pocketune.errors import PocketuneError
from pocketune.files import reading, sha256
from pocketune.forecast import draft
from pocketune.kit.kit import Kit
from pocketune.kit.manifest import Manifest
from pocketune.kit.titles import network_title
from pocketune.methods import Method, create_method, method_to_dict
from pocketune.networks.config import NetworkConfig
from pocketune.networks.registry import is_dense
from pocketune.planner.candidate import Candidate, Cost
from pocketune.planner.context import PlanContext
from pocketune.planner.features import Features
from pocketune.planner.plan import LeftOut
from pocketune.planner.screening import LEAST_FIRST
from pocketune.planner.trial import HeadScore
from pocketune.proposals.features import embed, last_maps
from pocketune.proposals.pixels import score_pixels
from pocketune.proposals.weights import Pretrained, title_of
from pocketune.seeding import seeded
from pocketune.weights import create_network

METHODS = LEAST_FIRST
"""The methods to choose from; the first is that of the fallbacks."""
SIZES = (160, 128, 224)
"""Image sizes in pixels; the first is looked at first."""
BATCH = 8
SMALLER_BATCHES = (8, 4, 2, 1)
"""Batches of the fallbacks, whose frozen part has 8 bits."""

DENSE = (
    {"name": "deeplabv3", "head_channels": 64},
    {"name": "deeplabv3", "head_channels": 64, "output_stride": 16},
    {"name": "lraspp"},
)
"""Decode heads that a backbone gets, for masks; one that does not fit a backbone is dropped."""
DENSE_METHODS = (
    {"name": "blocks", "blocks": 0},
    {"name": "blocks", "blocks": 3},
    {"name": "full"},
)
"""The methods to choose from for masks: a decode head is random, so that each trains it."""
DENSE_SIZES = (192, 128, 256)


class DraftSource:
    """Candidates that kits can be built from.

    Args:
        context: What candidates are measured with.
        pretrained: Networks with their weights.
        methods: Names of the methods to choose from; by default a few that differ in memory.
        left_out: Files of weights that fit no network.
    """

    def __init__(
        self,
        context: PlanContext,
        pretrained: Sequence[Pretrained],
        methods: Sequence[str] | None = None,
        left_out: Sequence[LeftOut] = (),
    ) -> None:
        self._context = context
        self._dense = context.photos.labeled.dense
        self._sizes = DENSE_SIZES if self._dense else SIZES
        fitting = (self._fitting(one) for one in pretrained)
        self._pretrained = [each for several in fitting for each in several]
        self._contents = {path: _content(path) for path in {one.path for one in self._pretrained}}
        usual = DENSE_METHODS if self._dense else [{"name": name} for name in METHODS]
        chosen = usual if methods is None else [{"name": name} for name in methods]
        self._methods = [_method(each) for each in chosen]
        self._fallback_methods = self._methods[:1] if methods is None else self._methods
        self._left_out = list(left_out)
        self._features: dict[str, Features] = {}
        self._accumulating: dict[str, bool] = {}

    def _fitting(self, one: Pretrained) -> Iterator[Pretrained]:
        """The networks for the photos' labels that have these weights."""
        if is_dense(one.config.name) == self._dense:
            yield one
        elif self._dense:
            for head in DENSE:
                config = replace(one.config, backbone=one.config.name, **head)
                yield replace(one, config=config)

    def find(self) -> tuple[list[Candidate], list[LeftOut]]:
        """Every network at every size with every method.

        Raises:
            PocketuneError: No network has weights for the photos' labels.
        """
        if not self._pretrained:
            raise PocketuneError(
                "the weights are those of networks that classify pixels, and the photos have no "
                "masks; give other weights"
            )
        found = [
            self._candidate(one, size, method)
            for size in self._sizes
            for one in self._pretrained
            for method in self._methods
        ]
        return found, self._left_out

    def fallbacks(self) -> Iterator[list[Candidate]]:
        """The frozen part in 8 bits, and then smaller batches, too, the lowest resolution first.

        Of the methods that a plan chooses from by itself, only the one of least memory has them.
        """
        for batch in SMALLER_BATCHES:
            found = (
                self._smaller(self._candidate(one, size, method), batch)
                for size in sorted(self._sizes)
                for one in self._pretrained
                for method in self._fallback_methods
            )
            yield [each for each in found if each is not None]

    def _smaller(self, usual: Candidate, batch: int) -> Candidate | None:
        """A candidate with its frozen part in 8 bits and a smaller batch; None if there is none.

        Batches are accumulated to as many images where that gives the same gradients.
        """
        name = usual.name if usual.frozen_bits == 8 else f"{usual.name}, 8 bits"
        smaller = replace(usual, name=name, frozen_bits=8)
        if batch == BATCH:
            return smaller if smaller != usual else None
        smaller = replace(smaller, name=f"{name}, batch {batch}", batch=batch)
        if self._accumulates(usual):
            return replace(smaller, accumulate=usual.accumulate * BATCH // batch)
        return smaller if batch > 1 else None  # norms need the statistics of several images

    def _accumulates(self, usual: Candidate) -> bool:
        """Whether the images of a batch do not affect one another."""
        key = repr((usual.network, usual.method))
        if key not in self._accumulating:
            try:
                manifest = self._draft(replace(usual, size=min(self._sizes), frozen_bits=8))
                self._accumulating[key] = not manifest.statistics
            except PocketuneError:  # its prediction tells the reason
                return False
        return self._accumulating[key]

    def _candidate(self, one: Pretrained, size: int, method: Method) -> Candidate:
        config, network = one.config, network_title(one.config.to_dict())
        if [network_title(other.config.to_dict()) for other in self._pretrained].count(network) > 1:
            network = f"{network} of {title_of(one.path)}"
        group = f"{network}, {size} px" + (", 8-bit weights" if one.frozen_bits else "")
        return Candidate(
            name=f"{group}, {_label(method)}",
            group=group,
            kit=None,
            network=config.to_dict(),
            weights=str(one.path),
            method=method_to_dict(method),
            size=size,
            batch=BATCH,
            accumulate=self._context.settings.accumulate,
            frozen_bits=one.frozen_bits or method.frozen_bits or 32,
            weights_sha256=self._contents[one.path],
        )

    def cost(self, candidate: Candidate) -> Cost:
        """The cost of a draft, from shapes alone."""
        began = time.monotonic()
        cost = self._context.cost(self._draft(candidate), candidate.accumulate)
        return replace(cost, seconds=time.monotonic() - began)

    def _draft(self, candidate: Candidate) -> Manifest:
        return draft(
            NetworkConfig.from_dict(candidate.network),
            _method(candidate.method),
            size=candidate.size,
            batch=candidate.batch,
            task=self._context.photos.labeled,
            frozen_bits=candidate.frozen_bits,
        )

    def head(self, candidate: Candidate, count: int) -> HeadScore:
        """The score of the frozen features, in PyTorch."""
        began = time.monotonic()
        config = NetworkConfig.from_dict(candidate.network)
        with seeded():
            network = create_network(
                config.name,
                weights=candidate.weights,
                classes=len(self._context.photos.classes),
                **_options(config),
            )
        if self._dense:
            score, photos = score_pixels(
                partial(last_maps, network), self._context.photos, candidate.size, count
            )
        else:
            features = self._features.setdefault(
                candidate.group, Features(self._context.photos, candidate.size)
            )
            score, photos = features.score(partial(embed, network), count)
        return HeadScore(score=score, seconds=time.monotonic() - began, photos=photos)

    def kit(self, candidate: Candidate, optimizer: str) -> Path:
        """The kit, built into the folder of the plan unless it is there.

        Raises:
            PocketuneError: It cannot be built, or it takes more than was predicted and than fits.
        """
        context, config = self._context, NetworkConfig.from_dict(candidate.network)
        made_of = hashlib.sha256(repr((candidate, pocketune.__version__)).encode())
        context.photos.add_to(made_of)
        path = context.folder / "kits" / f"{config.name}-{made_of.hexdigest()[:12]}.zip"
        if not path.exists():
            build_kit(
                path,
                network=config.name,
                method=_method(candidate.method),
                weights=candidate.weights,
                size=candidate.size,
                batch=candidate.batch,
                photos=context.photos,
                frozen_bits=candidate.frozen_bits,
                **_options(config),
            )
        settings = replace(context.settings, optimizer=optimizer)
        manifest = Kit.open(path, verify=False).manifest
        cost = context.cost(manifest, candidate.accumulate, settings)
        budget = context.settings.budget_bytes
        if budget is not None and (cost.memory > budget or cost.optimizer != optimizer):
            raise PocketuneError(
                f"its kit needs {format_size(cost.memory)} with {cost.optimizer}, more than was "
                "predicted"
            )
        return path


def _content(path: Path) -> str:
    with reading(path), path.open("rb") as file:
        return sha256(file)


def _method(values: dict[str, Any]) -> Method:
    options = dict(values)
    return create_method(options.pop("name"), **options)


def _options(config: NetworkConfig) -> dict[str, Any]:
    """What of a config determines the layers beside the weights."""
    return {
        "width": config.width,
        "padding": config.padding,
        "backbone": config.backbone,
        "head_channels": config.head_channels,
        "output_stride": config.output_stride,
    }


def _label(method: Method) -> str:
    """A method by its name; `decode head` if that is all it trains."""
    values = method_to_dict(method)
    return "decode head" if values.get("blocks") == 0 else str(values["name"])
