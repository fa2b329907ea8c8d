"""A supernet around pretrained weights, before and after progressive shrinking.

    python benchmarks/bench_supernet.py [--out supernet.safetensors] [--epochs 1] [--modules]

The pretrained MobileNetV2 of width 0.35 is one of the sub-networks of its supernet, and the teacher
of all others, so the photos of Imagenette and flowers need no labels. Measured on the validation
photos of Imagenette, with the batch norms of each sub-network re-estimated on its training photos:
the share whose class is the likeliest of all 1000, and the share on which the sub-network agrees
with the teacher. If the script is stopped, it goes on where it was; if the file of the supernet is
there without progress, it is only measured.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn

import pocketune
from bench_repnet_accuracy import imagenette
from data import parse, unpack
from pocketune.data import ImageDataset, Loader, load_splits
from pocketune.device.train.display import console
from pocketune.networks import normalize
from pocketune.papers.tinytl_search import macs_of
from pocketune.shrinking import ShrinkingRecipe
from pocketune.supernet import Space, SubnetConfig, Supernet, pretrained_config
from pocketune.weights.measured import create_measured
from pretrained import NETWORKS, weights_file
from report import table, write

NAME = "mbv2-w0.35"
SIZES = (64, 80, 96)
MODULES = {"module_groups": (2, 4), "module_kernels": (3, 5)}
ESTIMATED, SAMPLED = 600, 31
Scores = dict[str, tuple[float, float]]
"""What `Judge` measures, by sub-network."""


def everything(data: Path, scratch: Path, folder: Path) -> ImageDataset:
    """The training photos of all sets, as one dataset whose classes are the sets."""
    folder.mkdir()
    for name, source in (("imagenette", scratch / "imagenette"), *sets(data, scratch)):
        (folder / name).mkdir()
        for number, path in enumerate(sorted((source / "train").rglob("*.jp*g"))):
            (folder / name / f"{number:05d}.jpg").symlink_to(path)
    return load_splits(folder, val_fraction=0.0).train


def sets(data: Path, scratch: Path) -> Iterator[tuple[str, Path]]:
    for name in ("flower_photos", "flowers"):
        yield name, unpack(data, name, scratch / name)


@torch.inference_mode()
def outputs(network: nn.Module, photos: ImageDataset, size: int) -> torch.Tensor:
    """Logits (N, 1000) of all photos."""
    network.eval()
    batches = Loader(photos, size=size, batch=50, train=False).epoch(0)
    return torch.cat([network(normalize(network, batch.images)) for batch in batches])


class Judge:
    """Measures sub-networks on the validation photos of Imagenette."""

    def __init__(self, data: Path, scratch: Path, teacher: nn.Module, size: int) -> None:
        self.train, self.photos, self.numbers = imagenette(data, scratch / "imagenette")
        self.size = size
        labels = np.concatenate(
            [b.labels for b in Loader(self.photos, size=size, batch=50, train=False).epoch(0)]
        )
        self.truth = torch.tensor(self.numbers)[torch.from_numpy(labels)]
        self.followed = outputs(teacher, self.photos, size).argmax(1)
        self.teacher = self._percent(self.followed, self.truth)

    def __call__(self, supernet: Supernet, config: SubnetConfig) -> tuple[float, float]:
        """Percent of photos of the right class, and of those on which the teacher agrees."""
        network = supernet.subnet(config)
        batches = pocketune.sample_batches(
            network, self.train, size=self.size, count=ESTIMATED, batch=100
        )
        pocketune.estimate_batch_norm(network, batches)
        found = outputs(network, self.photos, self.size).argmax(1)
        return self._percent(found, self.truth), self._percent(found, self.followed)

    @staticmethod
    def _percent(one: torch.Tensor, other: torch.Tensor) -> float:
        return 100 * (one == other).double().mean().item()


def chosen(space: Space) -> dict[str, SubnetConfig]:
    """The sub-networks to measure; the median one by its MACs among some that are drawn."""
    rng = np.random.default_rng(0)
    drawn = [space.sample(rng) for _ in range(SAMPLED)]
    median = sorted(drawn, key=lambda config: macs_of(space, config).inference)[SAMPLED // 2]
    return {
        "smallest": space.smallest,
        "median": median,
        "largest": space.largest,
        "as pretrained": pretrained_config(space),
    }


def pretrain(
    supernet: Supernet,
    teacher: nn.Module,
    out: Path,
    scratch: Path,
    options: argparse.Namespace,
) -> float:
    """Shrink a supernet, unless its file is there without progress; gives the CPU minutes."""
    if out.exists() and not out.with_suffix(".progress.safetensors").exists():
        return 0.0
    start = cpu_minutes()
    recipe = ShrinkingRecipe(
        epochs=options.epochs, start="depth", lr=options.lr, batch=options.batch
    )
    pocketune.pretrain_supernet(
        supernet,
        everything(options.data, scratch, scratch / "all"),
        out,
        recipe=recipe,
        teacher=teacher,
        accelerator="cpu",
        progress=console(),
    )
    return cpu_minutes() - start


def cpu_minutes() -> float:
    """Minutes of the processor that this process has taken."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return (used.ru_utime + used.ru_stime) / 60


def publish(
    supernet: Supernet,
    before: Scores,
    after: Scores,
    teacher: float,
    minutes: float,
    options: argparse.Namespace,
) -> None:
    """Write the table: a row for each sub-network."""
    rows = []
    for label, config in chosen(supernet.space).items():
        macs = macs_of(supernet.space, config, SIZES[-1]).inference / 1e6
        parameters = sum(p.numel() for p in supernet.subnet(config).parameters()) / 1e6
        figures = [f"{value:.1f}" for pair in (before[label], after[label]) for value in pair]
        rows.append([label, f"{macs:.1f}", f"{parameters:.2f}", *figures])
    header = ["sub-network", "MACs (M)", "parameters (M)", "top-1 before", "agreement before"]
    header += ["top-1 after", "agreement after"]
    note = (
        f"Supernet around {NAME}, {SIZES[-1]} px. Top-1 among 1000 classes and agreement with the "
        f"pretrained network, in percent of 500 validation photos of Imagenette (about ±4); the "
        f"pretrained network itself has {teacher:.1f}. Statistics of batch norms are "
        f"re-estimated on {ESTIMATED} training photos. Shrinking in depth and width, "
        f"{options.epochs} epochs a long phase over the 3,419 training photos of Imagenette and "
        f"flowers at {SIZES[0]} to {SIZES[-1]} px: {minutes:.0f} CPU minutes in this run."
    )
    name = "supernet_modules" if options.modules else "supernet"
    title = "A supernet before and after progressive shrinking"
    write(name, title, f"{note}\n\n{table(header, rows)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="file of the supernet; by default it is removed")
    parser.add_argument("--modules", action="store_true", help="with lite residual modules")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--batch", type=int, default=32)
    options = parse(parser)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    made_for, weights = NETWORKS[NAME], weights_file(options.data, NAME)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        out = options.out or scratch / "supernet.safetensors"
        teacher = pocketune.create_network(made_for.network, **made_for.options(weights))
        judge = Judge(options.data, scratch, teacher, SIZES[-1])
        whole = create_measured(
            made_for.network, **made_for.options(weights), size=SIZES[-1], photos=judge.train
        )
        modules = MODULES if options.modules else {}
        supernet = Supernet.from_network(whole, sizes=SIZES, **modules)
        supernet.sort_channels()
        configs = chosen(supernet.space)
        before = {label: judge(supernet, config) for label, config in configs.items()}
        print(judge.teacher, before, flush=True)
        minutes = pretrain(supernet, teacher, out, scratch, options)
        supernet = pocketune.load_supernet(out)
        after = {label: judge(supernet, config) for label, config in configs.items()}
    publish(supernet, before, after, judge.teacher, minutes, options)


if __name__ == "__main__":
    main()
