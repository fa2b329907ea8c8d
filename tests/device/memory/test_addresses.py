"""What is refused under a limit of address space."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pocketune.device.memory import addresses
from pocketune.device.memory.addresses import (
    check_addresses,
    kit_addresses,
    numpy_addresses,
    runtime_addresses,
)
from pocketune.errors import PocketuneError

TAKEN = 100 * 4096
"""Bytes that the process of these tests takes."""


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A process on four cores that takes 100 pages."""
    statm = tmp_path / "statm"
    statm.write_text("100 20 5 1 0 50 0\n")
    monkeypatch.setattr(addresses, "_STATM", statm)
    monkeypatch.setattr(addresses.mmap, "PAGESIZE", 4096)
    monkeypatch.setattr(addresses, "available_cores", lambda: 4)
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def limit_to(process: pytest.MonkeyPatch, size: int | None) -> None:
    process.setattr(addresses, "_limit", lambda: size)


def test_what_fits_exactly_is_allowed(process: pytest.MonkeyPatch) -> None:
    limit_to(process, TAKEN + 5_000_000)
    check_addresses(5_000_000, "training")
    with pytest.raises(PocketuneError, match=r"training needs about 5\.4 MB of address space"):
        check_addresses(5_000_001, "training")


def test_without_a_limit_everything_is_allowed(process: pytest.MonkeyPatch) -> None:
    limit_to(process, None)
    check_addresses(1 << 60, "training")


def test_systems_that_do_not_count_addresses_have_no_limit(
    process: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    process.setattr(addresses, "_STATM", tmp_path / "none")
    check_addresses(1 << 60, "training")


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of Linux")
def test_the_limit_is_that_of_the_system(process: pytest.MonkeyPatch) -> None:
    import resource

    process.setattr(resource, "getrlimit", {resource.RLIMIT_AS: (1 << 30, 1 << 31)}.get)
    with pytest.raises(PocketuneError, match="may have 1074 MB"):
        check_addresses(1 << 30, "training")
    process.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    check_addresses(1 << 60, "training")


def test_each_thread_of_numpy_takes_a_stack_and_a_buffer(process: pytest.MonkeyPatch) -> None:
    four = numpy_addresses()
    process.setenv("OMP_NUM_THREADS", "2")
    two = numpy_addresses()
    process.setenv("OPENBLAS_NUM_THREADS", "1")  # of more weight than OMP_NUM_THREADS
    one = numpy_addresses()
    assert four - two == 2 * (two - one) > 0
    for value in ("0", "many", "64"):  # as many as there are cores
        process.setenv("OPENBLAS_NUM_THREADS", value)
        process.delenv("OMP_NUM_THREADS", raising=False)
        assert numpy_addresses() == four


def test_the_arena_reserves_half_more_than_it_uses_and_a_region_at_least() -> None:
    small, none = kit_addresses(10_000_000, 4_000_000), kit_addresses(6_000_000, 0)
    assert small == none
    large, larger = kit_addresses(100_000_000, 50_000_000), kit_addresses(100_000_000, 60_000_000)
    assert larger - large == 5_000_000


def test_the_runtime_takes_more_than_its_smallest_kit() -> None:
    assert runtime_addresses(2) > runtime_addresses(1) > kit_addresses(0, 0) > 1 << 25
