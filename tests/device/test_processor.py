"""Which processors cut sums of products off."""

from pathlib import Path

import pytest

from pocketune.device import processor


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
