"""Build the kit of a row of a comparison: the main function of its process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pocketune.data import MaskOptions, load_splits
from pocketune.errors import author_half
from pocketune.processes.job import do_job
from pocketune.threads import wait_asleep


@dataclass(frozen=True)
class BuildJob:
    """A kit to build.

    Attributes:
        out: The kit's folder.
        photos: The photos; those for training define the classes and calibrate frozen layers.
        val_fraction: Fraction of these for validation, as in the runs.
        ignore: Values of masks that do not count, as in the runs.
        class_names: Names of the values of masks, as in the runs.
        method: Name of the method, or of several with `+`.
        method_options: Its options.
        build: Other arguments of `build_kit`.
    """

    out: str
    photos: str
    val_fraction: float
    ignore: str | None
    class_names: str | None
    method: str
    method_options: dict[str, Any]
    build: dict[str, Any]


def build(job: BuildJob) -> None:
    """Build the kit.

    Raises:
        PocketuneError: The author half is not installed, or the kit cannot be built.
    """
    with author_half("building a kit"):
        from pocketune.authoring import build_kit
        from pocketune.methods import compose_method
    step = {"batch": job.build["batch"], "size": job.build["size"]}
    splits = load_splits(
        job.photos,
        val_fraction=job.val_fraction,
        masks=MaskOptions(ignore=job.ignore, class_names=job.class_names),
    )
    build_kit(
        job.out,
        method=compose_method(job.method, job.method_options, **step),
        photos=splits.train,
        **job.build,
    )


if __name__ == "__main__":
    wait_asleep()
    do_job(BuildJob, build)
