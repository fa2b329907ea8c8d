"""Kits that are not compared with PyTorch: where only the graphs count, which the tests compare."""

from __future__ import annotations

from pocketune.compiler import pipeline


def skip_check() -> None:
    """Let every kit that this process compiles go without its five steps in PyTorch."""
    pipeline.check_engine = lambda *_, **__: None
