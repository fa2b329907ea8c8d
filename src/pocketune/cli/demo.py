"""`pocketune demo`."""

from __future__ import annotations

from pocketune.cli.command import command


@command()
def demo() -> None:
    """Fine-tune a bundled network twice on real images and compare, in a minute or two."""
    from pocketune.demo import run_demo

    run_demo()
