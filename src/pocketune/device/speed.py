"""The time of a training step, from a kit's manifest and the speed of this machine.

The speed is measured once, in a second or two, with small graphs that come with the package, and
kept in the user's cache folder for this processor, number of cores and runtime. The estimate is a
sum over the kinds of operators that the manifest counts: a fixed time for each call, and a time for
each operation or, where memory limits the speed, for each byte.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
import zipfile
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pocketune import user_cache
from pocketune.device.engine.session import RUNTIME, open_session
from pocketune.device.machine import Machine
from pocketune.device.train.optimizer import Adam
from pocketune.kit.manifest import Work
from pocketune.schema import parse_object, read_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pocketune.kit.manifest import Manifest

_PROBES = Path(__file__).with_name("probes.zip")
_REPEATS = 24
"""Runs of a probe; the fastest counts, because other programs only make a run slower."""

_TYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(uint8)": np.uint8}

_BY_BYTE = ("elementwise", "move")
_CALL = "call"
_UPDATED = 250_000
"""Parameters of the update that is timed."""


@dataclass(frozen=True)
class Speed:
    """How fast a machine computes.

    Attributes:
        call: Seconds for each operator that is executed.
        rates: Seconds for an operation or, for kinds that memory limits, for a byte, by the kinds
            of `WorkKind`.
        update: Seconds for a byte of parameters or of optimizer state in an update.
    """

    call: float
    rates: dict[str, float]
    update: float

    def seconds(self, work: Mapping[str, Work]) -> float:
        """Seconds for this work; kinds that were not measured cost their calls only."""
        return sum(
            each.calls * self.call + self.rates.get(kind, 0.0) * _amount(kind, each)
            for kind, each in work.items()
        )


def estimate_step(
    manifest: Manifest,
    speed: Speed,
    *,
    classes: int | None = None,
    slots: float = 2,
    accumulate: int = 1,
) -> float:
    """Seconds of a training step on photos that are decoded already.

    Args:
        manifest: Of a kit, or of one that is only drafted.
        speed: The speed of the machine that trains.
        classes: Number of classes; by default the kit's.
        slots: Size of the optimizer's state relative to the parameters.
        accumulate: Batches in a step.
    """
    graphs, seconds = manifest.graphs, 0.0
    if "features" in graphs:
        calls = -(-manifest.batch // manifest.images_at_once)
        work = {
            kind: Work(calls * each.calls, manifest.batch * each.flops, manifest.batch * each.bytes)
            for kind, each in graphs["features"].work.items()
        }
        seconds += speed.seconds(work)
    seconds += manifest.micro_batches * speed.seconds(graphs["step"].work)
    shapes = manifest.shapes(classes or len(manifest.classes))
    trained = sum(4 * math.prod(shapes[spec.name]) for spec in manifest.parameters)
    return accumulate * seconds + (1 + slots) * trained * speed.update


def measure_speed() -> Speed:
    """The speed of this machine, with as many threads as a run would use; kept in the cache."""
    machine = Machine.current()
    key = [RUNTIME, machine.system, machine.processor, machine.cores, _PROBES.stat().st_size]
    name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
    return user_cache.cached(
        f"speed/{name}.json",
        _measure,
        lambda content: read_object(Speed, parse_object(content, name), name),
        lambda speed: json.dumps(asdict(speed)).encode(),
    )


def _measure() -> Speed:
    """Time each probe, and divide what its other kinds do not explain by its own work."""
    times, amounts = defaultdict[str, float](float), defaultdict[str, float](float)
    speed = Speed(0.0, {}, _update())
    with zipfile.ZipFile(_PROBES) as archive:
        for number, probe in enumerate(json.loads(archive.read("probes.json"))):
            kind, work = probe["kind"], {k: Work(**w) for k, w in probe["work"].items()}
            seconds = _fastest(_runner(archive.read(f"{number}.onnx"), probe))
            if kind == _CALL:
                speed = Speed(seconds / sum(w.calls for w in work.values()), {}, speed.update)
                continue
            others = {k: Work(w.calls, 0, 0) if k == kind else w for k, w in work.items()}
            times[kind] += max(seconds - speed.seconds(others), 0.1 * seconds)
            amounts[kind] += _amount(kind, work[kind])
            speed.rates[kind] = times[kind] / amounts[kind]
    return speed


def _amount(kind: str, work: Work) -> int:
    return work.bytes if kind in _BY_BYTE else work.flops


def _runner(model: bytes, probe: Mapping[str, Any]) -> Callable[[], object]:
    integers = probe["kind"].startswith("integer")
    session = open_session(model, as_written=not probe["optimized"], integers=integers)
    feeds = {
        each.name: np.full(each.shape, 0.01, np.float32).astype(_TYPES[each.type])
        for each in session.get_inputs()
    }
    return lambda: session.run(None, feeds)


def _update() -> float:
    """Seconds for a byte of parameters and Adam's state."""
    values = {"w": np.zeros(_UPDATED, np.float32)}
    gradients = {"w": np.full(_UPDATED, 0.01, np.float32)}
    optimizer = Adam(values)
    seconds = _fastest(lambda: optimizer.step(gradients, lr=1e-3))
    return seconds / (4 * _UPDATED * (1 + len(optimizer.slots)))


def _fastest(run: Callable[[], object]) -> float:
    """Seconds of the fastest of several runs, after two that do not count."""
    times = []
    for _ in range(_REPEATS + 2):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times[2:])
