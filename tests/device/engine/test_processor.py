"""Which processors cut sums of products off, and how many cores there are."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pocketune.device.engine import processor


@pytest.mark.parametrize(
    ("machine", "flags", "saturates"),
    [
        ("x86_64", "flags : sse4_2 avx2", True),
        ("AMD64", None, True),
        ("x86_64", "flags : avx2 avx512_vnni", False),
        ("x86_64", "flags : avx2 avx_vnni", False),
        ("aarch64", "Features : fp asimd", False),
        ("arm64", None, False),
    ],
)
def test_products_saturate(
    machine: str,
    flags: str | None,
    saturates: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    if flags is not None:
        cpuinfo.write_text(flags)
    monkeypatch.setattr(processor.platform, "machine", lambda: machine)
    monkeypatch.setattr(processor, "_CPUINFO", cpuinfo)
    assert processor.products_saturate.__wrapped__() is saturates


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no affinities")
def test_cores_are_those_that_this_process_may_use() -> None:
    code = (
        "import os; from pocketune.device.engine.processor import available_cores; "
        "os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1]); print(available_cores())"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert printed.stdout.strip() == b"1"
