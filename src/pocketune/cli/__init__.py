"""The commands. Each turns its arguments into calls of the library and prints the result."""

from pocketune.cli.app import app, main

__all__ = [
    "app",
    "main",
]
