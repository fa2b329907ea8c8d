"""Feature extractor adaptation: the predictor, the searched sub-network, and two sets of photos.

    python benchmarks/bench_extractor.py [--supernet FILE] [--seeds 1]

Without a file, the supernet is made around the published MobileNetV2 0.35, and not shrunk: its
sub-networks are as good as phase 1 makes them.

Figure 1: the rank correlation of the predictor on sub-networks that it has not seen, and the
accuracy of the searched sub-network on the test photos, beside the median of 20 random ones and the
largest one that fit the same budget. Figure 2: whether the ranking of sub-networks differs between
the two sets. Sub-networks are compared as the supernet was adapted, and with the classifier that a
run of `pocketune train` computes before its first step. Results in the .json are kept, so that a
stopped run continues; `--fresh` discards them. With `--work`, a stopped search continues, too.
"""

from __future__ import annotations

import argparse
import math
import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from bench_repnet_accuracy import imagenette
from data import parse, unpack
from pocketune.data import ImageDataset, Loader, load_splits
from pocketune.device.head import fit_head
from pocketune.device.train.display import console
from pocketune.extractor import ExtractorSettings
from pocketune.extractor.clock import Clock
from pocketune.extractor.costs import within
from pocketune.extractor.genome import Genes, fitting
from pocketune.extractor.measuring import Measurer, in_parts, ordered, plain_subnet
from pocketune.extractor.predictor import fit_network, fit_predictor, fit_ridge, rank_correlation
from pocketune.extractor.record import Forecast
from pocketune.extractor.search import Search
from pocketune.extractor.spaces import config_of, genes_of
from pocketune.methods import TinyTL
from pocketune.networks import normalize
from pocketune.papers.search_cost import SHARE
from pocketune.supernet import SubnetConfig, Supernet, save_supernet
from pocketune.weights import estimate_batch_norm
from pocketune.weights.measured import create_measured
from pretrained import NETWORKS, weights_file
from report import keep, kept, spread, table, write

NAME = "extractor"
Decoded = list[tuple[torch.Tensor, np.ndarray]]
"""Normalized images of a batch (N, 3, H, W), and their labels (N,)."""
SETS = ("flowers", "flower_photos")
NETWORK, SIZES = "mbv2-w0.35", (64, 80, 96)
RANDOM, UNSEEN = 20, 100
BATCH = 8
FITTED = 600
"""Training photos that a classifier is computed from, at most."""
BEST = 10
"""Sub-networks of each set in the table of ranks."""


def around_mobilenet(data: Path, scratch: Path) -> Path:
    """A supernet around published weights; what these lack starts as the identity."""
    made = NETWORKS[NETWORK]
    photos, _, _ = imagenette(data, scratch / "imagenette")
    network = create_measured(
        made.network,
        **made.options(weights_file(data, NETWORK)),
        size=SIZES[-1],
        photos=photos,
    )
    supernet = Supernet.from_network(network, sizes=SIZES)
    supernet.sort_channels()
    save_supernet(supernet, scratch / "supernet.safetensors")
    return scratch / "supernet.safetensors"


def thin(photos: Path, most: int) -> None:
    """Keep at most so many photos, as many of each class."""
    classes = [folder for folder in sorted(photos.iterdir()) if folder.is_dir()]
    for folder in classes:
        for photo in sorted(folder.iterdir())[most // len(classes) :]:
            photo.unlink()


def cpu() -> float:
    """Seconds of the processor that this process has taken."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Judge:
    """Accuracies of sub-networks on the test photos; all photos are decoded once."""

    def __init__(self, search: Search, test: ImageDataset, size: int) -> None:
        self._search = search
        self._test = self._decoded(test, size)
        self._training = self._decoded(search.photos.thinned(FITTED), size)

    @torch.no_grad()
    def __call__(self, config: SubnetConfig) -> dict[str, float]:
        """Accuracy on the test photos in percent, as adapted and as a run starts."""
        network, task = plain_subnet(self._search.supernet, config), self._search.task
        estimate_batch_norm(network, (images for images, _ in self._training))

        def embedded(photos: Decoded) -> Iterator[tuple[np.ndarray, np.ndarray]]:
            for images, labels in photos:
                yield in_parts(network.features, images).mean((2, 3)).numpy(), labels

        training, test = list(embedded(self._training)), list(embedded(self._test))
        head = fit_head(lambda: iter(training), task)
        assert head is not None
        layer = network.classifier[-1]
        adapted = (layer.weight.numpy(), layer.bias.numpy())
        scores = {}
        for name, (weight, bias) in (("adapted", adapted), ("start", (head.weight, head.bias))):
            metric = task.metric()
            for embeddings, labels in test:
                metric.update(embeddings @ weight.T + bias, labels)
            scores[name] = 100 * metric.score.value
        return scores

    def _decoded(self, photos: ImageDataset, size: int) -> Decoded:
        batches = Loader(photos, size=size, batch=64, train=False).epoch(0)
        return [(normalize(self._search.supernet, each.images), each.labels) for each in batches]


def largest(search: Search) -> SubnetConfig:
    """The sub-network of the most multiplications whose forecast keeps the limits."""
    rng, costs = np.random.default_rng(5), search.costs()
    drawn = fitting(search.genome, rng, 20_000, costs.fits)
    return _first(search, drawn[np.argsort(-costs.estimate(drawn)[:, 2], kind="stable")])


def _first(search: Search, genes: Genes) -> SubnetConfig:
    for row in genes:
        config = config_of(search.space, search.genome, row)
        found = search.forecast(config)
        cost = np.array([[found.memory, found.step_seconds, found.macs]], float)
        if within(cost, search.settings)[0]:
            return config
    raise SystemExit("nothing fits the budget")


def opened(photos: Path, supernet: Path, options: argparse.Namespace, seed: int) -> Search:
    """The search of a set, within a budget between both ends of the space."""
    count = len(load_splits(photos).train)
    settings = ExtractorSettings(
        size=options.size,
        epochs=max(1, round(BATCH * options.steps / (SHARE * count))),
        pairs=options.pairs,
        batch=BATCH,
        seed=seed,
    )
    work = options.work / f"{photos.name}-{seed}"
    search = _search(photos, settings, supernet, work)
    least, most = (end.memory for end in ends(search))
    budget = int(least + options.share * (most - least))
    return _search(photos, replace(settings, budget=budget), supernet, work)


def _search(photos: Path, settings: ExtractorSettings, supernet: Path, work: Path) -> Search:
    """A search without a time limit."""
    clock = Clock(math.inf, 1.0, time.monotonic())
    return Search(photos, settings, supernet, TinyTL(), work, console(), clock)


def ends(search: Search) -> list[Forecast]:
    """The forecasts of the smallest and of the largest sub-network."""
    genomes = (search.genome.smallest, search.genome.largest)
    return [search.forecast(config_of(search.space, search.genome, each[0])) for each in genomes]


def predicted(search: Search, seed: int) -> dict[str, Any]:
    """The first phase, the pairs, and other sub-networks, which the predictor has not seen."""
    resumed, began, seconds = bool(search.journal.record.steps), cpu(), {}
    for phase in ("adapt", "measure"):
        getattr(search, phase)()
        seconds[phase], began = cpu() - began, cpu()
    rng = np.random.default_rng((seed, 7))
    rows = search.genome.sample(rng, UNSEEN)
    unseen = ordered(search.space, (config_of(search.space, search.genome, row) for row in rows))
    measurer = Measurer(search.supernet, search.fit, search.held)
    others, pairs = list(measurer.measure(unseen)), search.journal.record.pairs
    codes, accuracies = encoded(search, pairs)
    new, wanted = encoded(search, others)
    found = fit_predictor(codes, accuracies, seed)
    fits = {"network": fit_network(codes, accuracies, seed), "ridge": fit_ridge(codes, accuracies)}
    return {
        "seconds": None if resumed else seconds,
        "shared": measurer.shared[0] / measurer.shared[1],
        "unseen": {name: rank_correlation(fit(new), wanted) for name, fit in fits.items()},
        "crossed": found.correlations,
        "used": found.name,
        "held": len(search.held),
        "steps": search.journal.record.steps,
        "accuracies": {repr(pair.config): pair.accuracy for pair in (*pairs, *others)},
    }


def searched(search: Search, test: ImageDataset, seed: int) -> dict[str, Any]:
    """The searched sub-network beside random ones and the largest one."""
    search.choose()
    record, judge = search.journal.record, Judge(search, test, search.genome.sizes[0])
    rng = np.random.default_rng((seed, 8))
    random = fitting(search.genome, rng, RANDOM, search.costs().fits)
    assert record.ranking is not None
    least, most = (end.memory for end in ends(search))
    return {
        "scores": {
            "searched": [judge(record.chosen.forecast.config)],
            "largest": [judge(largest(search))],
            "random": [judge(config_of(search.space, search.genome, row)) for row in random],
        },
        "memory": [least, search.settings.budget, most, record.chosen.forecast.memory],
        "memory_error": record.ranking.memory_error,
        "macs": record.macs,
        "front": [[each.forecast.memory, each.predicted] for each in record.front],
    }


def encoded(search: Search, pairs: Any) -> tuple[np.ndarray, np.ndarray]:
    """Encodings and accuracies of measured pairs."""
    genes = genes_of(search.genome, (pair.config for pair in pairs))
    return search.genome.encode(genes), np.array([pair.accuracy for pair in pairs])


def searched_rows(results: dict[str, Any], start: str) -> list[list[str]]:
    """Test accuracies by set: the searched one, the median of random ones, the largest."""
    rows = []
    for name in dict.fromkeys(key.split()[0] for key in results):
        runs = [each for key, each in results.items() if key.split()[0] == name]
        columns = [
            [each["scores"]["searched"][0][start] for each in runs],
            [median(one[start] for one in each["scores"]["random"]) for each in runs],
            [max(one[start] for one in each["scores"]["random"]) for each in runs],
            [each["scores"]["largest"][0][start] for each in runs],
        ]
        rows.append([name, *map(spread, columns)])
    return rows


def rank_rows(results: dict[str, Any]) -> tuple[list[list[str]], float]:
    """Ranks of each set's best sub-networks in the other set; the correlation of all ranks."""
    first, second = (results[f"{name} 0"]["accuracies"] for name in SETS)
    both = sorted(first.keys() & second.keys())
    values = [np.array([each[key] for key in both]) for each in (first, second)]
    ranks = [np.array([(v > each).sum() + 1 for each in v]) for v in values]
    rows = []
    for name, mine, others in ((SETS[0], *ranks), (SETS[1], *ranks[::-1])):
        best = np.argsort(mine, kind="stable")[:BEST]
        told = " ".join(str(others[each]) for each in best)
        rows.append([name, told, f"{np.median(others[best]):.0f} of {len(both)}"])
    return rows, rank_correlation(*values)


def ranking_paragraphs(results: dict[str, Any]) -> list[str]:
    """Figure 2, once both sets are measured."""
    if any(f"{name} 0" not in results for name in SETS):
        return []
    ranks, correlation = rank_rows(results)
    return [
        "## The ranking in the other set",
        f"The ranks that the {BEST} best measured sub-networks of one set have in the other one "
        f"(seed 0), and their median. The rank correlation of all is {correlation:.2f}.",
        table(["best in", "ranks in the other set", "median"], ranks),
    ]


def predictor_rows(results: dict[str, Any]) -> list[list[str]]:
    """Rank correlations of both predictors, on unseen sub-networks and in cross-validation."""
    rows = []
    for key, each in results.items():
        unseen, crossed = each["unseen"], each["crossed"]
        figures = (unseen["network"], unseen["ridge"], crossed["network"], crossed["ridge"])
        rows.append([key, *(f"{value:.2f}" for value in figures), each["used"], each["held"]])
    return rows


def minutes(results: dict[str, Any], phase: str) -> str:
    """Mean CPU minutes of a phase, of the searches that were not stopped."""
    known = [each["seconds"][phase] for each in results.values() if each["seconds"]]
    return f"{np.mean(known) / 60:.1f}" if known else "?"


def searched_paragraphs(results: dict[str, Any], options: argparse.Namespace) -> list[str]:
    """Figure 1's second part, of the sets that were searched."""
    found = {key: each for key, each in results.items() if "scores" in each}
    if not found:
        return []
    first = next(iter(found.values()))
    least, budget, most, _ = (f"{size / 1e6:.0f} MB" for size in first["memory"])
    error = max(each["memory_error"] for each in found.values())
    header = ["photos", "searched", "median of 20", "best of 20", "largest"]
    return [
        "## The searched sub-network",
        f"The budget is {budget} for the whole training process of TinyTL's L+B, "
        f"{options.share:.0%} of the way from the smallest sub-network, {least}, to the largest, "
        f"{most}. 95 % of the memory estimates of a search are within {error:.1%} of the forecast.",
        "Accuracy on the test photos in percent, mean and deviation over seeds. All fit the "
        "budget; the largest is the one of the most multiplications among 20,000 random ones that "
        "fit. With the adapted classifier:",
        table(header, searched_rows(found, "adapted")),
        "With the classifier that a run computes before its first step, here from at most "
        f"{FITTED} training photos:",
        table(header, searched_rows(found, "start")),
        "By the paper's formulas, the first of these searches takes "
        f"{first['macs']['adaptation'] / 1e12:.3f} T multiplications for the adaptation and "
        f"{first['macs']['measurement'] / 1e12:.3f} T for the pairs.",
    ]


def report(results: dict[str, Any], options: argparse.Namespace) -> None:
    """Write the tables."""
    rows = predictor_rows(results)
    header = ["photos, seed", "network", "ridge", "network, crossed", "ridge, crossed"]
    shared = np.mean([each["shared"] for each in results.values()])
    which = "A supernet around MobileNetV2 0.35 that is not shrunk"
    if options.supernet is not None:
        which = f"The supernet {options.supernet.name}"
    paragraphs = [
        f"{which}, {options.size} px, at most {options.most} training photos. About "
        f"{options.steps} steps of adaptation, {options.pairs} measured sub-networks.",
        "## The predictor",
        f"Rank correlation on {UNSEEN} sub-networks that it has not seen, and in cross-validation "
        "on its own pairs (crossed). All accuracies are measured on the held-out photos.",
        table([*header, "used", "held-out photos"], rows),
        *searched_paragraphs(results, options),
        *ranking_paragraphs(results),
        "## What it takes",
        f"CPU minutes on one core: {minutes(results, 'adapt')} for the adaptation, "
        f"{minutes(results, 'measure')} for the pairs. Of the parts of {UNSEEN} random "
        f"sub-networks, {shared:.0%} are shared with a neighbor.",
    ]
    write(NAME, "Feature extractor adaptation", "\n\n".join(paragraphs))


def missing(
    found: dict[str, Any], photos: Path, supernet: Path, options: argparse.Namespace, seed: int
) -> Iterator[dict[str, Any]]:
    """What is not known yet of a set and a seed: the predictor, and then the search."""
    searches = not options.no_search and "scores" not in found
    if found and not searches:
        return
    search = opened(photos, supernet, options, seed)
    if not found:
        yield predicted(search, seed)
    else:  # from the folder of a search that was stopped
        search.adapt()
        search.measure()
    if searches:
        test = load_splits(photos / "test", val_fraction=0.0).train
        yield searched(search, test, seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--supernet", type=Path, help="a pretrained one, of bench_supernet.py")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--share", type=float, default=0.4, help="budget between both ends")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--work", type=Path, help="folder of the searches; by default a new one")
    parser.add_argument("--most", type=int, default=720, help="training photos of each set")
    parser.add_argument("--no-search", action="store_true", help="only predictor and ranking")
    parser.add_argument("--fresh", action="store_true", help="discard kept results")
    options = parse(parser)
    torch.set_num_threads(1)
    torch.manual_seed(0)  # for the blocks that MobileNetV2 does not have
    results = {} if options.fresh else kept(NAME)
    with tempfile.TemporaryDirectory() as name:
        options.work = options.work or Path(name) / "work"
        supernet = options.supernet or around_mobilenet(options.data, Path(name))
        folders = {each: unpack(options.data, each, Path(name) / each) for each in options.sets}
        for photos in folders.values():
            thin(photos / "train", options.most)
        for seed in range(options.seeds):
            for each, photos in folders.items():
                found = results.setdefault(f"{each} {seed}", {})
                for part in missing(found, photos, supernet, options, seed):
                    found.update(part)
                    keep(NAME, results)
    report(results, options)


if __name__ == "__main__":
    main()
