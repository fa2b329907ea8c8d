"""``pocketune demo``: why fine-tuning is worth it, shown on real images in two minutes."""

from pocketune.demo.compare import run_demo, unpack_digits

__all__ = ["run_demo", "unpack_digits"]
