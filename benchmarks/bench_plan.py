"""The planner against an exhaustive run of everything that it may choose.

    python benchmarks/bench_plan.py [--data FOLDER] [--parts runs plans] [--scratch FOLDER]
        [--photos flowers ...] [--steps 200] [--seeds 2] [--networks mbv2-w0.35 ...]
        [--methods last ...] [--budgets 64MB ...]

Kits of every network and method are trained on the photos, each in a process of its own, with the
same number of steps, once for each seed. For each budget, `pocketune plan` chooses among the same
kits in at most 15 % of the time that the runs of one seed took, and its choice is compared with the
best of the kits whose predicted memory fits. Regret is the difference of their accuracies on the
test photos, means of all seeds. Kits are built once, with the flowers as photos to calibrate with.
The bundled kits take no part: their network was chosen by looking at photos of two of these sets.

The time of the runs is that of the processor, so that they may be made while other programs run;
plans are limited by the clock and need an idle machine. `--parts` makes one without the other, and
`--scratch` keeps photos and kits between them. Results in the .json are kept, so that a stopped
script continues; `--fresh` discards those of the parts that are made.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

import pocketune
from data import parse, unpack
from pocketune.device.memory.sizes import parse_size
from pocketune.device.train.record import RunRecord
from pocketune.errors import PocketuneError
from pocketune.methods import create_method
from pocketune.planner.limits import PLANNING_SHARE
from pocketune.processes.command import run_command
from pretrained import NETWORKS, weights_file
from report import keep, kept, spread, table, write

BUDGETS = ("64MB", "80MB", "96MB", "128MB", "192MB")
METHODS = ("last", "mobiletl", "blocks")
SETS = ("flowers", "flower_photos", "cifar10")
PARTS = ("runs", "plans")


class Bench:
    """Runs and plans on sets of photos, in a folder that may be kept."""

    def __init__(self, options: argparse.Namespace, scratch: Path) -> None:
        self._options, self._scratch = options, scratch

    def photos(self, name: str) -> Path:
        """A set of photos, unpacked."""
        folder = self._scratch / name
        return folder if folder.exists() else unpack(self._options.data, name, folder)

    def kits(self) -> list[Path]:
        """A kit of each network and method, in a folder of their own."""
        folder, data = self._scratch / "kits", self._options.data
        folder.mkdir(exist_ok=True)
        found = []
        for network in self._options.networks:
            for method in self._options.methods:
                out, weights = folder / f"{network}-{method}.zip", weights_file(data, network)
                found.append(out)
                if not out.exists():
                    photos = self.photos(SETS[0])
                    NETWORKS[network].kit(out, create_method(method), weights, photos)
                    print(f"built {out.name}", flush=True)
        return found

    def exhaust(
        self, name: str, seed: int, found: dict[str, Any], save: Callable[[], None]
    ) -> None:
        """Train every kit that has not been trained with this seed yet."""
        for kit in self.kits():
            runs = found.setdefault(kit.name, {})
            if str(seed) not in runs:
                runs[str(seed)] = self._trained(name, kit, seed)
                save()
                print(name, kit.name, seed, runs[str(seed)]["test"], flush=True)

    def _trained(self, name: str, kit: Path, seed: int) -> dict[str, Any]:
        photos = self.photos(name)
        with tempfile.TemporaryDirectory(dir=self._scratch) as folder:
            run, began = Path(folder) / "run", processor_seconds()
            options = ("--out", run, "--steps", self._options.steps, "--seed", seed)
            code, errors = run_command(
                *("train", photos / "train", "--kit", kit, *options), quiet=True, keep_errors=True
            )
            if code:
                raise SystemExit(errors)
            seconds, record = processor_seconds() - began, RunRecord.read(run)
            found = pocketune.predict(run, photos / "test", top=1)
            right = [each.guesses[0].label == Path(each.name).parent.name for each in found]
        return {
            "test": 100 * mean(right),
            "right": "".join(str(int(each)) for each in right),
            "predicted": record.predicted_memory,
            "peak": record.peak_memory,
            "seconds": seconds,
        }

    def planned(self, name: str, budget: str, exhaustive: float) -> dict[str, Any]:
        """The choice of the planner for a budget, and what it took."""
        began, spent = time.monotonic(), processor_seconds()
        no_bundled = mock.patch("pocketune.planner.kits.list_kits", return_value=[])
        with tempfile.TemporaryDirectory() as folder, no_bundled:
            try:
                plan = pocketune.plan(
                    self.photos(name) / "train",
                    folder,
                    budget=budget,
                    time=exhaustive,
                    kits=self.kits()[0].parent,
                    steps=self._options.steps,
                )
            except PocketuneError as error:
                return {"choice": None, "reason": str(error)}
        probes = [probe for trial in plan.trials for probe in trial.probes]
        limit = parse_size(budget)
        return {
            "choice": plan.choice,
            "fits": [t.name for t in plan.trials if t.cost and t.cost.memory <= limit],
            "limit": PLANNING_SHARE * exhaustive,
            "seconds": time.monotonic() - began,
            "processor": processor_seconds() - spent,
            "probes": len(probes),
            "peak": max((probe.peak for probe in probes), default=0),
        }


def processor_seconds() -> float:
    """Seconds of the processor that this process and the finished ones that it started took."""
    both = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(sum(resource.getrusage(who)[:2]) for who in both)


def exhaustive_seconds(runs: dict[str, Any]) -> float:
    """Processor seconds of the runs of one seed."""
    return sum(mean(run["seconds"] for run in seeds.values()) for seeds in runs.values())


def rights(seeds: dict[str, Any]) -> NDArray[np.float64]:
    """The share of the seeds that are right about each test photo."""
    return np.mean([[int(each) for each in run["right"]] for run in seeds.values()], axis=0)


def regret(best: dict[str, Any], chosen: dict[str, Any]) -> tuple[float, float]:
    """Points that a choice is behind, and their standard error over the test photos."""
    behind = 100 * (rights(best) - rights(chosen))
    return float(behind.mean()), float(behind.std() / np.sqrt(len(behind)))


def fair_regret(fitting: list[dict[str, Any]], chosen: dict[str, Any]) -> float:
    """The same, where half of the test photos say which kit is best, and the others how good it is.

    The kit that is best on all photos owes that to chance in part.
    """
    halves = [slice(0, None, 2), slice(1, None, 2)]
    found = []
    for judging, measuring in (halves, halves[::-1]):
        best = max(fitting, key=lambda runs: rights(runs)[judging].mean())
        found.append(100 * float((rights(best) - rights(chosen))[measuring].mean()))
    return mean(found)


def score(runs: dict[str, Any]) -> float:
    """The mean test accuracy of a kit, in percent."""
    return mean(run["test"] for run in runs.values())


def row(name: str, budget: str, runs: dict[str, Any], plan: dict[str, Any]) -> list[object]:
    """A row of the table."""
    fitting = {kit: runs[kit] for kit in plan.get("fits", ()) if kit in runs}
    best = max(fitting, key=lambda kit: score(fitting[kit]), default=None)
    if best is None:
        return [name, budget, 0, "nothing fits", plan["choice"], *[""] * 6]
    chosen = runs[plan["choice"]]
    behind, error = regret(fitting[best], chosen)
    return [
        name,
        budget,
        len(fitting),
        f"{Path(best).stem} ({score(fitting[best]):.1f})",
        f"{Path(plan['choice']).stem} ({score(chosen):.1f})",
        f"{behind:.1f} ± {error:.1f}",
        f"{fair_regret(list(fitting.values()), chosen):.1f}",
        f"{plan['seconds']:.0f} of {plan['limit']:.0f}",
        f"{plan['processor']:.0f}",
        plan["probes"],
        f"{plan['peak'] / 1e6:.0f}" if plan["probes"] else "",
    ]


def publish(results: dict[str, Any], steps: int) -> None:
    """Write what is known so far."""
    keep("plan", results)
    rows = [
        row(name, budget, result["runs"], plan)
        for name, result in results.items()
        for budget, plan in result["plans"].items()
    ]
    regrets = [float(str(each[5]).split()[0]) for each in rows if each[5]]
    fair = [float(str(each[6])) for each in rows if each[6]]
    total = ", ".join(
        f"{name} {exhaustive_seconds(result['runs']):.0f} s" for name, result in results.items()
    )
    note = (
        f"Runs of {steps} steps, each in a process of its own. Those of one seed took, by the "
        f"processor: {total}. A plan may take {PLANNING_SHARE:.0%} of that by the clock. What fits "
        "is so by prediction. Regret is the mean over seeds and test photos, ± the standard error "
        "over the photos. For the fair regret, half of the photos say which kit is best, and the "
        "others how far the choice is behind it. Memory is the largest peak of a probe, a run "
        "while planning."
    )
    if regrets:
        note += f" Mean regret {mean(regrets):.2f} points, largest {max(regrets):.1f}"
        note += f"; mean fair regret {mean(fair):.2f}."
    names = ["budget", "kits that fit", "best (test, %)", "choice (test, %)", "regret"]
    names += ["fair regret", "planning, s", "processor, s", "probes", "peak MB"]
    parts = [note, runs_table(results)]
    if rows:
        parts.insert(1, table(["photos", *names], rows))
    write("plan", "The planner against an exhaustive search", "\n\n".join(parts))


def runs_table(results: dict[str, Any]) -> str:
    """The accuracy of each kit on each set, in percent, and its largest peak."""
    rows = []
    for kit in sorted({kit for result in results.values() for kit in result["runs"]}):
        known = {name: result["runs"].get(kit) for name, result in results.items()}
        peaks = [run["peak"] for runs in known.values() if runs for run in runs.values()]
        spreads = [
            spread([run["test"] for run in (runs or {}).values()]) for runs in known.values()
        ]
        rows.append([Path(kit).stem, f"{max(peaks) / 1e6:.0f}", *spreads])
    return table(["kit", "peak MB", *results], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--scratch", type=Path, help="keep photos and kits in this folder")
    parser.add_argument("--photos", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--budgets", nargs="+", default=list(BUDGETS))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--fresh", action="store_true", help="discard the parts that are made")
    options = parse(parser)
    results = kept("plan")
    for name in options.photos:
        result = results.setdefault(name, {"runs": {}, "plans": {}})
        if options.fresh:
            result.update({part: {} for part in options.parts})
    with tempfile.TemporaryDirectory() as temporary:
        scratch = options.scratch or Path(temporary)
        scratch.mkdir(parents=True, exist_ok=True)
        bench = Bench(options, scratch)
        for seed in range(options.seeds if "runs" in options.parts else 0):
            for name in options.photos:
                bench.exhaust(name, seed, results[name]["runs"], lambda: keep("plan", results))
        if "plans" in options.parts:
            make_plans(bench, results, options)
    publish(results, options.steps)


def make_plans(bench: Bench, results: dict[str, Any], options: argparse.Namespace) -> None:
    """Plan for each set of photos and budget that has no plan yet."""
    for name in options.photos:
        runs, plans = results[name]["runs"], results[name]["plans"]
        for budget in options.budgets:
            if budget not in plans:
                plans[budget] = bench.planned(name, budget, exhaustive_seconds(runs))
                publish(results, options.steps)


if __name__ == "__main__":
    main()
