"""The commands. They hold no logic: each turns its arguments into one call of the library."""

from pocketune.cli.app import app, main

__all__ = [
    "app",
    "main",
]
