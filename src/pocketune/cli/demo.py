"""``pocketune demo``."""

from __future__ import annotations


def demo() -> None:
    """Fine-tune a bundled network on real images, twice, and compare. Takes about two minutes."""
    from pocketune.demo import run_demo

    run_demo()
