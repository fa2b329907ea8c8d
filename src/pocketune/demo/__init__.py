"""``pocketune demo``: why fine-tuning is worth it, shown on real images in two minutes."""

from .compare import run_demo
from .digits import unpack_digits

__all__ = ["run_demo", "unpack_digits"]
