"""What sub-networks take: the forecast of each kit, and estimates for many from a few forecasts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pocketune.data.images.cost import Decoding
from pocketune.device.train.settings import TrainSettings
from pocketune.extractor.genome import Genes, Genome
from pocketune.extractor.predictor import Values
from pocketune.extractor.record import Forecast
from pocketune.extractor.settings import ExtractorSettings
from pocketune.extractor.shapes import Tables
from pocketune.extractor.spaces import genes_of
from pocketune.forecast import draft
from pocketune.kit.manifest import Manifest
from pocketune.methods import Method
from pocketune.papers.tinytl_search import macs_of
from pocketune.planner.candidate import Cost
from pocketune.planner.predict import predict_cost
from pocketune.supernet import Space, SubnetConfig
from pocketune.tasks import Task

PENALTY = 1e-2
"""Of the linear model, whose features have a standard deviation of 1."""


@dataclass(frozen=True)
class Forecaster:
    """Forecasts what training a sub-network's kit takes on the device.

    Attributes:
        space: The sub-networks.
        method: What the kit trains.
        batch: Images in a step.
        task: What is learned.
        process: Resident bytes of a training process before it opens a kit.
        decodings: What decoding the photos takes, by the size of the images.
    """

    space: Space
    method: Method
    batch: int
    task: Task
    process: int
    decodings: Mapping[int, Decoding | None]

    def __call__(self, config: SubnetConfig, *, cached: bool = True) -> Forecast:
        """The forecast of a sub-network, in seconds: its kit's graphs are made, without values.

        Args:
            config: The sub-network.
            cached: Take the graphs' sizes from the user's cache if they are there.
        """
        network = self.space.network_config(config)
        manifest = draft(
            network,
            self.method,
            size=config.size,
            batch=self.batch,
            task=self.task,
            cached=cached,
        )
        cost = self.cost(manifest)
        macs = macs_of(self.space, config, config.size)
        return Forecast(
            config=self.space.canonical(config),
            memory=cost.memory,
            step_seconds=cost.step_seconds,
            macs=macs.inference,
            training_macs=macs.training,
        )

    def cost(self, manifest: Manifest) -> Cost:
        """What training a kit takes, from its manifest."""
        return predict_cost(
            manifest,
            TrainSettings(),
            process=self.process,
            classes=len(self.task.classes),
            accumulate=1,
            decoding=self.decodings[manifest.size],
        )


class CostModel:
    """Estimates the costs of sub-networks from the forecasts of some.

    A forecast takes seconds, and a search looks at 50,000 sub-networks. The estimate is linear in
    the sizes of weights and maps. A sub-network that has a forecast keeps it.

    Args:
        space: The sub-networks.
        genome: Their choices.
        forecasts: The forecasts.
        settings: The limits.

    Attributes:
        error: 95 % of the forecasts differ at most by this share from the estimate of their memory
            that the others give.
    """

    def __init__(
        self,
        space: Space,
        genome: Genome,
        forecasts: Sequence[Forecast],
        settings: ExtractorSettings,
    ) -> None:
        self._tables = Tables.of(space, genome)
        self._settings = settings
        genes = genes_of(genome, (each.config for each in forecasts))
        costs = np.array([[f.memory, f.step_seconds, f.macs] for f in forecasts], float)
        self._known = dict(zip(self._keys(genes), costs, strict=True))
        features = self._tables.features(genes)
        self._fit(features, costs)
        self.error = self._left_out(features, costs[:, 0])

    def estimate(self, genes: Genes) -> Values:
        """Memory, seconds of a step and multiplications (N, 3)."""
        scaled = (self._tables.features(genes) - self._center) / self._scale
        costs: Values = scaled @ self._weight + self._base
        for row, key in enumerate(self._keys(genes)):
            if key in self._known:
                costs[row] = self._known[key]
        return costs

    def fits(self, genes: Genes) -> NDArray[np.bool_]:
        """Whether sub-networks (N,) keep the limits, by the estimate."""
        return within(self.estimate(genes), self._settings)

    def _fit(self, features: Values, costs: Values) -> None:
        self._center, self._scale = features.mean(axis=0), features.std(axis=0)
        self._scale[self._scale == 0] = 1  # a single image size
        scaled = (features - self._center) / self._scale
        self._base = costs.mean(axis=0)
        self._moment = scaled.T @ scaled + PENALTY * np.eye(scaled.shape[1])
        self._weight = np.linalg.solve(self._moment, scaled.T @ (costs - self._base))

    def _left_out(self, features: Values, memory: Values) -> float:
        scaled = (features - self._center) / self._scale
        leverage = (scaled * np.linalg.solve(self._moment, scaled.T).T).sum(axis=1)
        leverage = np.minimum(leverage + 1 / len(scaled), 1 - 1e-9)
        residual = memory - scaled @ self._weight[:, 0] - self._base[0]
        return float(np.quantile(np.abs(residual / (1 - leverage)) / memory, 0.95))

    def _keys(self, genes: Genes) -> list[bytes]:
        return [row.tobytes() for row in self._tables.genome.canonical(genes)]


def within(costs: Values, settings: ExtractorSettings) -> NDArray[np.bool_]:
    """Whether costs (N, 3), of memory, step and multiplications, keep the limits."""
    most = (settings.budget_bytes, settings.step_seconds, settings.macs and settings.macs * 1e6)
    ends = np.array([np.inf if limit is None else limit for limit in most], float)
    kept: NDArray[np.bool_] = np.all(costs <= ends, axis=1)
    return kept


def keeps(forecast: Forecast, settings: ExtractorSettings) -> bool:
    """Whether a forecast keeps the limits."""
    costs = np.array([[forecast.memory, forecast.step_seconds, forecast.macs]], float)
    return bool(within(costs, settings)[0])
