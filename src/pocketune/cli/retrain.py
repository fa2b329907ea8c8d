"""`pocketune retrain`."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pocketune.cli.command import command, given
from pocketune.cli.options import (
    LABELED,
    NETWORK_PANEL,
    HardwareOptions,
    MaskReading,
    NetworkOptions,
    ShapeOptions,
    argument,
    shown_name,
)
from pocketune.device.train.display import console
from pocketune.errors import PocketuneError, author_half
from pocketune.options import flag, option
from pocketune.pruning.recipe import Recipe

if TYPE_CHECKING:
    from torch import nn

    from pocketune.data import ImageDataset


@dataclass(frozen=True, kw_only=True)
class StudentArgument:
    """The network to retrain."""

    network: str | Path = argument(
        "Output of [bold]pocketune prune[/bold]; or one of [bold]pocketune networks[/bold], with "
        "--weights to start from.",
        metavar="FILE|NETWORK",
    )


@dataclass(frozen=True, kw_only=True)
class RetrainOptions:
    """The photos, the output, added modules and the teacher."""

    photos: str | Path = option(LABELED, metavar="PHOTOS")
    out: Path = option(
        "Output .safetensors file. Repeat the same command to resume after a stop.",
        metavar="FILE",
    )
    lite_residual: bool = option(
        "Add TinyTL's lite residual modules first; [bold]train --method tinytl[/bold] then starts "
        "from them.",
        default=False,
    )
    lite_kernel: int = option(
        "Largest kernel of these modules, odd.", default=5, metavar="PIXELS", at_least=1
    )
    lite_groups: int = option(
        "Groups of the first convolution of these modules.", default=2, metavar="N", at_least=1
    )
    teacher: str | None = option(
        "Weights of the unpruned network to distill from, in addition to the labels, or instead of "
        "them if the photos have other classes.",
        default=None,
        metavar="FILE|imagenet",
        unset="none",
    )


@command(
    "pocketune retrain pruned.safetensors --photos imagenette/ \\",
    "    --teacher imagenet --out retrained.safetensors",
    "pocketune retrain mobilenet_v2 --weights imagenet --lite-residual \\",
    "    --photos imagenette/ --out with_modules.safetensors",
    "pocketune retrain mobilenet_v2 --weights imagenet --norm group \\",
    "    --standardized --lite-residual --teacher imagenet \\",
    "    --photos photos/ --out group.safetensors",
)
def retrain(
    student: StudentArgument,
    options: RetrainOptions,
    hardware: HardwareOptions,
    recipe: Recipe,
    network: NetworkOptions,
    shape: ShapeOptions,
    reading: MaskReading,
) -> None:
    """Retrain a whole network, on the CPU or on several GPUs.

    Recovers accuracy after pruning; or pretrains TinyTL's lite residual modules, on the data that
    the network was pretrained on; or turns batch norms into group norms. The output file can be
    passed as --weights to the other commands.
    """
    from pocketune.data import load_splits

    dataset = load_splits(options.photos, masks=reading.options).train
    with author_half("retraining"):
        from pocketune.methods import TinyTL
        from pocketune.pruning import retrain as retrain_network
        from pocketune.pruning.teacher import load_teacher
        from pocketune.seeding import seeded

    name, teacher = str(student.network), options.teacher
    _refuse_unused(options, recipe)
    with seeded(recipe.seed):  # to resume, a repeated command needs what is random again
        if Path(name).is_file() or Path(name).suffix:
            created = _loaded(name)
        else:
            created = _created(name, {**asdict(network), **asdict(shape)}, recipe, dataset, teacher)
        whole = None if teacher is None else load_teacher(teacher, created)
        if options.lite_residual:
            modules = TinyTL(kernel=options.lite_kernel, groups=options.lite_groups)
            created = modules.insert_modules(created)
    losses = retrain_network(
        created,
        dataset,
        options.out,
        recipe=recipe,
        teacher=whole,
        **asdict(hardware),
        progress=console(sys.stderr),
    )
    if losses:
        print(f"mean loss of the last epoch {losses[-1]:.3f}")
    print(f"saved in {options.out}")


def _loaded(file: str) -> nn.Module:
    """The network in a file; options that describe a network are refused beside it."""
    from pocketune.weights import load_network

    for each in given().values():
        if each.option.panel == NETWORK_PANEL:
            raise PocketuneError(
                f"{shown_name(each)} cannot be used here: {file} already holds a network and its "
                "weights"
            )
    return load_network(file)


def _created(
    name: str,
    options: dict[str, Any],
    recipe: Recipe,
    photos: ImageDataset,
    teacher: str | None,
) -> nn.Module:
    """A new network, with the classes of the photos, or of the weights if a teacher is followed."""
    from pocketune.weights.measured import create_measured
    from pocketune.weights.saved import recorded_classes

    taught = recorded_classes(options["weights"] or teacher)
    classes = taught if teacher else len(photos.classes)
    return create_measured(name, classes=classes, **options, size=recipe.size, photos=photos)


def _refuse_unused(options: RetrainOptions, recipe: Recipe) -> None:
    """Refuse options that have no effect."""
    if not options.lite_residual and {"lite_kernel", "lite_groups"} & given().keys():
        raise PocketuneError("--lite-kernel and --lite-groups need --lite-residual; add it")
    if options.teacher is None and {"distillation", "temperature"} & given().keys():
        raise PocketuneError("--distillation and --temperature need --teacher; add it")
    unused = {"label_smoothing", "class_weights", "distillation", "temperature"} & given().keys()
    if recipe.follow == "blocks" and unused:
        raise PocketuneError(
            f"{flag(min(unused))} has no effect with --follow blocks; leave it out"
        )
