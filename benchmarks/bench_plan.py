"""The planner against an exhaustive run of everything that it may choose.

    python benchmarks/bench_plan.py [--data FOLDER] [--photos flowers ...] [--steps 200]
        [--networks mbv2-w0.35 ...] [--methods last ...] [--budgets 64MB ...]

Kits of every network and method are trained on the photos, each in a process of its own, with the
same number of steps. For each budget, `pocketune plan` chooses among the same kits in at most 15 %
of the time that all these runs took, and its choice is compared with the best of the runs whose
predicted memory fits. Regret is the difference of the two accuracies on the test photos. Results in
the .json are kept, so that a stopped run continues; `--fresh` discards them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import mean
from typing import Any

import pocketune
from data import parse, unpack
from pocketune.command import run_command
from pocketune.device.memory.sizes import parse_size
from pocketune.device.train.record import RunRecord
from pocketune.errors import PocketuneError
from pocketune.methods import create_method
from pocketune.planner.limits import PLANNING_SHARE
from pretrained import NETWORKS, weights_file
from report import keep, kept, table, write

BUDGETS = ("64MB", "80MB", "96MB", "128MB", "192MB")
METHODS = ("last", "mobiletl", "blocks", "tinytl")
SETS = ("flowers", "flower_photos", "cifar10")


def build(data: Path, photos: Path, options: argparse.Namespace, folder: Path) -> Path:
    """A folder with a kit of each network and method."""
    folder.mkdir()
    for network in options.networks:
        for method in options.methods:
            out, weights = folder / f"{network}-{method}.zip", weights_file(data, network)
            NETWORKS[network].kit(out, create_method(method), weights, photos)
            print(f"built {out.name}", flush=True)
    return folder


def exhaust(kits: Path, photos: Path, steps: int, runs: Path, found: dict[str, Any]) -> None:
    """Train every kit that is not in the results yet."""
    for kit in sorted(kits.iterdir()):
        if kit.name in found:
            continue
        run, began = runs / kit.stem, time.monotonic()
        code, errors = run_command(
            *("train", photos / "train", "--kit", kit, "--out", run, "--steps", steps),
            quiet=True,
            keep_errors=True,
        )
        if code:
            raise SystemExit(errors)
        record = RunRecord.read(run)
        found[kit.name] = {
            "test": 100 * pocketune.evaluate(run, photos / "test").top1,
            "predicted": record.predicted_memory,
            "peak": record.peak_memory,
            "seconds": time.monotonic() - began,
        }
        print(kit.name, found[kit.name], flush=True)


def planned(
    kits: Path, photos: Path, budget: str, options: argparse.Namespace, exhaustive: float
) -> dict[str, Any]:
    """The choice of the planner for a budget, and what it took."""
    seconds = PLANNING_SHARE * exhaustive
    with tempfile.TemporaryDirectory() as folder:
        try:
            plan = pocketune.plan(
                photos / "train",
                folder,
                budget=budget,
                time=seconds / PLANNING_SHARE,
                kits=kits,
                steps=options.steps,
            )
        except PocketuneError as error:
            return {"choice": None, "reason": str(error)}
    probes = [probe for trial in plan.trials for probe in trial.probes]
    limit = parse_size(budget)
    return {
        "choice": plan.choice,
        "fits": [t.name for t in plan.trials if t.cost and t.cost.memory <= limit],
        "seconds": plan.seconds,
        "probes": len(probes),
        "peak": max((probe.peak for probe in probes), default=0),
    }


def row(name: str, budget: str, runs: dict[str, Any], plan: dict[str, Any]) -> list[object]:
    """A row of the table."""
    fitting = {kit: runs[kit] for kit in plan.get("fits", ()) if kit in runs}
    best = max(fitting, key=lambda kit: fitting[kit]["test"], default=None)
    if best is None or plan["choice"] is None:
        return [name, budget, len(fitting), best or "nothing fits", plan["choice"], "", "", "", ""]
    chosen = runs.get(plan["choice"])
    # A bundled kit was not run to the end: the planner should not have preferred it.
    regret = fitting[best]["test"] - chosen["test"] if chosen else float("nan")
    return [
        name,
        budget,
        len(fitting),
        f"{best} ({fitting[best]['test']:.1f})",
        plan["choice"],
        f"{regret:.1f}",
        f"{plan['seconds']:.0f}",
        plan["probes"],
        f"{plan['peak'] / 1e6:.0f}" if plan["probes"] else "",
    ]


def publish(results: dict[str, Any], steps: int) -> None:
    """Write what is known so far."""
    rows = [
        row(name, budget, result["runs"], plan)
        for name, result in results.items()
        for budget, plan in result["plans"].items()
    ]
    header = ["photos", "budget", "kits that fit", "best (test, %)", "choice", "regret"]
    regrets = [float(str(each[5])) for each in rows if each[5] not in ("", "nan")]
    total = ", ".join(
        f"{name} {sum(run['seconds'] for run in result['runs'].values()):.0f} s"
        for name, result in results.items()
    )
    note = (
        f"Runs of {steps} steps, each in a process of its own. All runs together took: {total}; a "
        f"plan may take {PLANNING_SHARE:.0%} of that. What fits is so by prediction. Memory is the "
        "largest peak of a probe, a run while planning."
    )
    if regrets:
        note += f" Mean regret {mean(regrets):.2f} points, largest {max(regrets):.1f}."
    lines = table([*header, "planning, s", "probes", "peak MB"], rows)
    keep("plan", results)
    write("plan", "The planner against an exhaustive search", f"{note}\n\n{lines}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--budgets", nargs="+", default=list(BUDGETS))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--fresh", action="store_true", help="keep nothing of the .json")
    options = parse(parser)
    results = {} if options.fresh else kept("plan")
    for name in options.photos:
        result = results.setdefault(name, {"runs": {}, "plans": {}})
        with tempfile.TemporaryDirectory() as scratch:
            photos = unpack(options.data, name, Path(scratch) / name)
            kits = build(options.data, photos, options, Path(scratch) / "kits")
            exhaust(kits, photos, options.steps, Path(scratch) / "runs", result["runs"])
            total = sum(run["seconds"] for run in result["runs"].values())
            for budget in options.budgets:
                if budget not in result["plans"]:
                    result["plans"][budget] = planned(kits, photos, budget, options, total)
                publish(results, options.steps)


if __name__ == "__main__":
    main()
