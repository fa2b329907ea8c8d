"""`pocketune pretrain-supernet`."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pocketune.cli.command import command
from pocketune.cli.options import LABELED, HardwareOptions, NetworkOptions, argument
from pocketune.errors import PocketuneError, author_half
from pocketune.options import option
from pocketune.shrinking.recipe import ShrinkingRecipe

if TYPE_CHECKING:
    from pocketune.data import ImageDataset, Splits
    from pocketune.supernet import Supernet

_of_space = partial(option, panel="Space of sub-networks")
MODULES = {"module_groups": (2, 4), "module_kernels": (3, 5)}


@dataclass(frozen=True, kw_only=True)
class PretrainOptions:
    """The photos, the output and the teacher."""

    photos: str | Path = argument(LABELED, metavar="PHOTOS")
    out: Path = option(
        "Output .safetensors file. Repeat the same command to resume after a stop.",
        metavar="FILE",
    )
    teacher: Path | None = option(
        "Network whose soft labels all sub-networks follow: a .safetensors file of pocketune.",
        default=None,
        metavar="FILE",
        unset="the largest sub-network",
    )


@dataclass(frozen=True, kw_only=True)
class SpaceOptions:
    """Options of `Space` other than those of all networks."""

    channels: str = _of_space(
        "Channels of the stages: those of ProxylessNAS, as in TinyTL's paper, or those of "
        "MobileNetV2, as with --weights.",
        default="ofa",
        choices=("ofa", "mobilenet_v2"),
    )
    sizes: str = _of_space(
        "Image heights and widths. A batch has one from the smallest to the largest.",
        default="128,160,192,224",
        metavar="PIXELS,...",
    )
    depths: str = _of_space("Blocks of a stage.", default="2,3,4", metavar="N,...")
    kernels: str = _of_space("Kernels of a block.", default="3,5,7", metavar="N,...")
    expansions: str = _of_space("Expansions of a block.", default="3,4,6", metavar="N,...")
    first: str = _of_space(
        "First strided block: TinyTL's reduced one lowers the peak of memory by a third.",
        default="ordinary",
        choices=("ordinary", "reduced"),
    )
    lite_residual: bool = _of_space(
        "With TinyTL's lite residual modules, of 2 or 4 groups and kernel 3 or 5.", default=False
    )

    def values(self) -> dict[str, Any]:
        """The arguments of `Space`."""
        names = ("sizes", "depths", "kernels", "expansions")
        listed = {name: _numbers(name, getattr(self, name)) for name in names}
        return {**listed, "first": self.first, **(MODULES if self.lite_residual else {})}


@command(
    "pocketune pretrain-supernet imagenet/ --out supernet.safetensors --devices 8",
    "pocketune pretrain-supernet photos/ --out supernet.safetensors --width 0.35 \\",
    "    --weights mbv2-w0.35.safetensors --sizes 64,96 --epochs 10",
    "pocketune pretrain-supernet photos/ --out supernet.safetensors --width 0.35 \\",
    "    --weights mbv2-w0.35.safetensors --sizes 64,96 --epochs 0",
)
def pretrain_supernet(
    options: PretrainOptions,
    hardware: HardwareOptions,
    space: SpaceOptions,
    recipe: ShrinkingRecipe,
    network: NetworkOptions,
) -> None:
    """Pretrain a supernet by progressive shrinking, for adapt-extractor.

    All sub-networks are trained at once: first the largest, then smaller kernels, fewer blocks and
    fewer channels too. With weights of a MobileNetV2, the supernet starts from these, and photos of
    any classes will do: every sub-network follows the largest one. With --epochs 0 nothing is
    trained: the supernet is written as it starts, for a search on some hundreds of photos.
    """
    from pocketune.data import load_splits
    from pocketune.device.train.display import console

    if not recipe.epochs and network.weights is None:
        raise PocketuneError(
            "--epochs 0 trains nothing, and a supernet of random weights has nothing to search: "
            "give pretrained weights with --weights, or more epochs"
        )
    splits = load_splits(options.photos)
    photos = splits.train
    with author_half("pretraining a supernet"):
        from pocketune.seeding import seeded
        from pocketune.shrinking import pretrain_supernet as pretrain
        from pocketune.weights import load_network

    teacher = None if options.teacher is None else load_network(options.teacher)
    with seeded(recipe.seed):  # to resume, a repeated command needs what is random again
        made = _random if network.weights is None else _around_weights
        supernet = made(space, network, photos)
    if network.weights is not None and recipe.start is None:
        recipe = replace(recipe, start="kernel")
    losses = pretrain(
        supernet,
        photos,
        options.out,
        recipe=recipe,
        teacher=teacher,
        **asdict(hardware),
        progress=console(sys.stderr),
    )
    if os.environ.get("LOCAL_RANK", "0") != "0":  # another process of the same run
        return
    if losses:
        print(f"mean loss of the last epoch {losses[-1]:.3f}")
    _print_accuracies(supernet, splits)
    print(f"saved in {options.out}")


def _print_accuracies(supernet: Supernet, splits: Splits) -> None:
    """Those of the extremes on validation photos, if there are any and of the same classes."""
    from pocketune.extractor.measuring import HELD, Measurer

    train, held, space = splits.train, splits.val, supernet.space
    task = train.labeled
    if task.dense or task.activation != "softmax" or len(task.classes) != space.classes:
        return
    if not len(held):
        return
    measurer = Measurer(supernet.cpu().eval(), train, held)
    for name, config in (("smallest", space.smallest), ("largest", space.largest)):
        (pair,) = measurer.measure([config])
        print(
            f"{name} sub-network, {config.size} px: {pair.accuracy:.1%} of {min(len(held), HELD)} "
            "validation photos are right"
        )


def _random(space: SpaceOptions, network: NetworkOptions, photos: ImageDataset) -> Supernet:
    from pocketune.supernet import Space, Supernet

    return Supernet(
        Space(
            channels=space.channels,
            width=1.0 if network.width is None else network.width,
            classes=len(photos.classes),
            padding=network.padding or "symmetric",
            norm=network.norm or "batch",
            standardized=bool(network.standardized),
            **space.values(),
        )
    )


def _around_weights(space: SpaceOptions, network: NetworkOptions, photos: ImageDataset) -> Supernet:
    from pocketune.supernet import Supernet
    from pocketune.weights.measured import create_measured

    values = space.values()
    pretrained = create_measured(
        "mobilenet_v2",
        weights=str(network.weights),
        width=network.width,
        padding=network.padding,
        norm=network.norm,
        standardized=network.standardized,
        size=max(values["sizes"]),
        photos=photos,
    )
    return Supernet.from_network(pretrained, **values)


def _numbers(name: str, text: str) -> tuple[int, ...]:
    """The numbers of an option such as `--sizes 64,96`."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) for word in words):
        raise PocketuneError(
            f"--{name} {text!r} must be whole numbers above 0 with commas between them"
        )
    return tuple(int(word) for word in words)
