"""The third phase: the chosen sub-network as a kit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from pocketune.authoring import build_kit
from pocketune.compiler.progress import Progress
from pocketune.data import ImageDataset
from pocketune.errors import PocketuneError
from pocketune.extractor.costs import Forecaster, keeps
from pocketune.extractor.record import CHOSEN, Finalist
from pocketune.extractor.settings import ExtractorSettings
from pocketune.kit.kit import Kit, kit_files
from pocketune.kit.writer import check_place, write_kit
from pocketune.networks import about
from pocketune.supernet import SubnetConfig, Supernet
from pocketune.weights import estimate_batch_norm, sample_batches, save_network

STATISTICS = 512
"""Photos that the chosen sub-network's batch norms get their statistics from, or up to twice as
many."""


def build_chosen(
    supernet: Supernet,
    finalists: Sequence[Finalist],
    out: Path,
    *,
    photos: ImageDataset,
    settings: ExtractorSettings,
    folder: Path,
    forecaster: Forecaster,
    progress: Progress,
) -> tuple[tuple[Finalist, ...], str]:
    """Build the kit of the first finalist whose kit keeps the limits.

    A kit may need more than its forecast: which layers stay in float32 is known when it is built.
    Until one keeps the limits, what is at `out` stays.

    Returns:
        The finalists, the one of the kit first, with the memory of that kit; the kit's identity.

    Raises:
        PocketuneError: None of the kits keeps them.
    """
    check_place(out)
    for number, finalist in enumerate(finalists):
        config = finalist.forecast.config
        with TemporaryDirectory(prefix="pocketune-") as scratch:
            kit = _build(
                supernet,
                config,
                Path(scratch) / "kit",
                forecaster=forecaster,
                photos=photos,
                file=folder / CHOSEN,
                progress=progress,
            )
            cost = forecaster.cost(kit.manifest)
            forecast = replace(
                finalist.forecast, memory=cost.memory, step_seconds=cost.step_seconds
            )
            if keeps(forecast, settings):
                files = {name: kit.source(name) for name in kit_files(kit.manifest)}
                kit = write_kit(out, kit.manifest, files, verify=False)
                rest = [each for place, each in enumerate(finalists) if place != number]
                return (replace(finalist, forecast=forecast), *rest), kit.identity
    raise PocketuneError(
        f"the kits of all sub-networks that were found need more than {settings.limits_text}; "
        "give a little more"
    )


def _build(
    supernet: Supernet,
    config: SubnetConfig,
    out: Path,
    *,
    forecaster: Forecaster,
    photos: ImageDataset,
    file: Path,
    progress: Progress,
) -> Kit:
    """The kit of a sub-network, whose values are also kept in a file of their own."""
    network = supernet.subnet(config).eval()
    batches = sample_batches(network, photos, size=config.size, count=STATISTICS, batch=64)
    # one photo has no variance where its maps are of one pixel
    estimate_batch_norm(network, (batch for batch in batches if len(batch) > 1))
    save_network(network, file)
    described = about(network).config
    assert described is not None
    return build_kit(
        out,
        network=described.name,
        weights=str(file),
        method=forecaster.method,
        size=config.size,
        batch=forecaster.batch,
        photos=photos,
        progress=progress,
    )
