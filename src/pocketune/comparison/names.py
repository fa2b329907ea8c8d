"""Check the names of networks and methods before anything runs: the main function of a process.

They are PyTorch's to know, which stays out of the process that waits for the runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pocketune.comparison.grid import Grid
from pocketune.errors import author_half
from pocketune.processes.job import do_job, run_job


@dataclass(frozen=True)
class NamesJob:
    """What is named in a comparison.

    Attributes:
        networks: The name of each network, its backbone, and the options of its decode head.
        methods: The name of each method, and its options.
    """

    networks: list[dict[str, Any]]
    methods: list[dict[str, Any]]


def check_names(grid: Grid) -> None:
    """Check that there are networks and methods of these names, with these options.

    Raises:
        PocketuneError: There are not, or the author half is not installed.
    """
    networks = [
        {
            "name": each.network,
            "backbone": each.backbone,
            "head_channels": each.head_channels,
            "output_stride": each.output_stride,
        }
        for each in grid.networks
        if not each.is_file
    ]
    methods = [{"names": each.method, "options": each.options} for each in grid.methods]
    run_job(__name__, NamesJob(networks, methods))


def _check(job: NamesJob) -> None:
    with author_half("building a kit"):
        from pocketune.methods import compose_method
        from pocketune.networks import NetworkConfig
        from pocketune.networks.registry import with_published_options
    for network in job.networks:
        with_published_options(NetworkConfig(**network))
    for method in job.methods:
        compose_method(**method)


if __name__ == "__main__":
    do_job(NamesJob, _check)
