"""`pocketune demo`: what fine-tuning achieves on real images, in two minutes."""

from pocketune.demo.compare import run_demo
from pocketune.demo.digits import unpack_digits

__all__ = ["run_demo", "unpack_digits"]
