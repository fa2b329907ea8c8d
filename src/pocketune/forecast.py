"""What a kit will be like and what training it will take, from a network's config alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import onnx
import torch

import pocketune
from pocketune import user_cache
from pocketune.compiler.draft import draft as draft_network
from pocketune.kit.manifest import Manifest
from pocketune.methods import Method, adapt, method_to_dict
from pocketune.networks.about import set_about
from pocketune.networks.config import NetworkConfig
from pocketune.networks.registry import is_dense
from pocketune.seeding import seeded
from pocketune.tasks import Task, default_task, numbered
from pocketune.weights.saved import build


def draft(
    network: NetworkConfig,
    method: Method,
    *,
    size: int = 224,
    batch: int = 8,
    task: Task | None = None,
    frozen_bits: int | None = None,
    calibrated: bool = True,
    cached: bool = True,
) -> Manifest:
    """The manifest of the kit that `build_kit` would write, in seconds.

    Over 60 configurations, it takes 2.2 s of the processor in the median, and 7.2 at most
    (`benchmarks/results/forecast.md`).

    `estimate_memory` and `estimate_step` take it as they take a kit's. Only shapes count: no
    weights are read, nothing is calibrated, checked or written. A layer of an 8-bit frozen part
    that will stay in float32, because its error is too large, is not foreseen.

    Args:
        network: Config of the network; its classes follow the task.
        method: The method that selects what is trained.
        size: Image height and width, in pixels.
        batch: Images that a step processes at once.
        task: What is learned; by default the classification of the network's classes.
        frozen_bits: See `adapt`. Weights that were published in 8 bits stay in 8 bits: give 8.
        calibrated: Whether photos will calibrate a frozen part in 8 bits, as `train` does it.
        cached: Keep the draft in the user's cache folder, and return one that is kept there.

    Raises:
        PocketuneError: An argument is out of range, or the method does not fit the network.

    Example:
        >>> kit = draft(NetworkConfig("mobilenet_v2", width=0.35), create_method("blocks"))
        ... # doctest: +SKIP
        >>> estimate_memory(kit, process=30_000_000, classes=10, slots=2)  # doctest: +SKIP
    """
    task = task or default_task(network.classes, dense=is_dense(network.name))
    network = replace(network, classes=len(task.classes))
    step = Step(size, batch, replace(task, classes=numbered(network.classes)), frozen_bits)
    drafted = partial(_draft, network, method, step, calibrated=calibrated)
    facts = {
        **step._asdict(),
        "task": step.task.to_dict(),
        "network": network.to_dict(),
        "method": method_to_dict(method),
        "calibrated": calibrated,
    }
    manifest = _kept(facts, drafted) if cached else drafted()
    return replace(manifest, task=replace(manifest.task, classes=task.classes))


class Step(NamedTuple):
    """What a step is drafted for; the names of classes do not matter."""

    size: int
    batch: int
    task: Task
    frozen_bits: int | None


def _draft(network: NetworkConfig, method: Method, step: Step, *, calibrated: bool) -> Manifest:
    with seeded():
        created = build(network)
        set_about(created, config=network, random_decode_head=is_dense(network.name))
        adapted = adapt(created, method, frozen_bits=step.frozen_bits)
    return draft_network(
        adapted, batch=step.batch, size=step.size, task=step.task, calibrated=calibrated
    )


@cache
def _code() -> list[object]:
    """What a draft depends on beside its arguments: the code of Pocketune and of its libraries."""
    sources = Path(pocketune.__file__).parent.rglob("*.py")
    newest = max(source.stat().st_mtime_ns for source in sources)
    return [pocketune.__version__, newest, torch.__version__, onnx.__version__]


def _kept(facts: dict[str, Any], drafted: Callable[[], Manifest]) -> Manifest:
    """The draft of these facts, from the cache if it is there."""
    key = json.dumps({**facts, "code": _code()}, sort_keys=True).encode()
    name = f"drafts/{hashlib.sha256(key).hexdigest()[:32]}.json"
    return user_cache.cached(
        name,
        drafted,
        lambda content: Manifest.from_json(content, name),
        lambda manifest: manifest.to_json(),
    )
