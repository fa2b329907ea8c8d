"""The name of this machine."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from pocketune.device import machine
from pocketune.device.machine import Machine


def test_this_machine_has_a_name_and_cores() -> None:
    here = Machine.current()
    assert here.processor
    assert 1 <= here.cores <= (os.cpu_count() or 1)
    assert here.python == platform.python_version()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("processor\t: 0\nmodel name\t: AMD EPYC 7R13\n", "AMD EPYC 7R13"),
        (
            "processor : 0\nCPU part : 0xd08\n\nModel : Raspberry Pi 4 Model B\n",
            "Raspberry Pi 4 Model B",
        ),
        ("model name :\nflags\n", platform.machine()),
    ],
)
def test_the_processor_is_that_of_the_system(
    text: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(machine, "_CPUINFO", tmp_path / "cpuinfo")
    assert Machine.current().processor == name
    monkeypatch.setattr(machine, "_CPUINFO", tmp_path / "nowhere")
    assert Machine.current().processor == platform.machine()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no affinities")
def test_cores_are_those_that_this_process_may_use() -> None:
    code = (
        "import os; from pocketune.device.machine import available_cores; "
        "os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1]); print(available_cores())"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert printed.stdout.strip() == b"1"


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of control groups, with this process in `/of/this`, on a machine without swap."""
    (tmp_path / "cgroup").write_text("9:name=systemd:/\n4:cpu,memory:/of/this\n0::/of/this\n")
    (tmp_path / "meminfo").write_text("MemTotal: 8000 kB\nSwapFree:       0 kB\n")
    monkeypatch.setattr(machine, "_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(machine, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(machine, "_GROUP_FOLDER", tmp_path)
    for folder in ("of/this", "memory/of/this", "cpu/of/this"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    ("limit", "cores"),
    [("max 100000", 8), ("200000 100000", 2), ("250000 100000", 2), ("50000 100000", 1), ("", 8)],
)
@pytest.mark.parametrize("folder", ["of/this", "of", "."])
def test_the_smallest_limit_of_processor_time(
    limit: str, cores: int, folder: str, groups: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8), raising=False)
    assert machine.available_cores() == 8
    (groups / folder / "cpu.max").write_text(f"{limit}\n")
    assert machine.available_cores() == cores
    (groups / "cpu/of/this/cpu.cfs_quota_us").write_text("-1\n")
    (groups / "cpu/of/this/cpu.cfs_period_us").write_text("100000\n")
    assert machine.available_cores() == cores
    (groups / "cpu/of/this/cpu.cfs_quota_us").write_text("100000\n")
    assert machine.available_cores() == 1


def test_no_limit_of_memory(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (groups / "of/this/memory.max").write_text("max\n")
    (groups / "memory/memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert machine.memory_limit() is None
    monkeypatch.setattr(machine, "_GROUPS", groups / "nowhere")
    assert machine.memory_limit() is None


@pytest.mark.parametrize(
    "file",
    [
        "of/this/memory.max",  # systemd, or a container that sees the groups of its host
        "of/memory.max",  # of the group around it
        "memory.max",  # a container that sees its own alone
        "memory/of/this/memory.limit_in_bytes",
        "memory/memory.limit_in_bytes",
    ],
)
def test_the_smallest_limit_of_memory(groups: Path, file: str) -> None:
    (groups / file).write_text("50000000\n")
    (groups / "memory/of/memory.limit_in_bytes").write_text("60000000\n")
    assert machine.memory_limit() == 50_000_000
    (groups / "meminfo").write_text("SwapFree:    1000 kB\n")
    assert machine.memory_limit() == 50_000_000 + 1000 * 1024


@pytest.mark.parametrize(
    ("files", "swap"),
    [
        ({"of/this/memory.swap.max": "max"}, 1_024_000),
        ({"of/this/memory.swap.max": "0"}, 0),  # of Kubernetes
        ({"of/memory.swap.max": "0"}, 0),
        ({"of/this/memory.swap.max": "300000", "of/this/memory.swap.current": "100000"}, 200_000),
        ({"of/this/memory.swap.max": "100000", "of/this/memory.swap.current": "300000"}, 0),
        ({"memory/of/this/memory.memsw.limit_in_bytes": "50000000"}, 0),
        ({"memory/of/this/memory.memsw.limit_in_bytes": "50300000"}, 300_000),
        ({"memory/memory.memsw.limit_in_bytes": "9223372036854771712"}, 1_024_000),
    ],
)
def test_swap_counts_as_far_as_the_groups_may_use_it(
    groups: Path, files: dict[str, str], swap: int
) -> None:
    (groups / "meminfo").write_text("SwapFree:    1000 kB\n")
    (groups / "of/this/memory.max").write_text("50000000\n")
    (groups / "memory/of/this/memory.limit_in_bytes").write_text("50000000\n")
    (groups / "memory/memory.limit_in_bytes").write_text("9223372036854771712\n")
    for file, text in files.items():
        (groups / file).write_text(f"{text}\n")
    assert machine.memory_limit() == 50_000_000 + swap
