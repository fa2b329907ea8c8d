"""The kit: the format that the author half writes and the device half reads."""

from pocketune.kit.kit import Kit
from pocketune.kit.manifest import KitError, Manifest

__all__ = ["Kit", "KitError", "Manifest"]
