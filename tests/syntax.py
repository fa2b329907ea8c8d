"""The syntax trees of source files, which several tests walk."""

import ast
from functools import cache
from pathlib import Path


@cache
def syntax_tree(path: Path) -> ast.Module:
    """The tree of a Python file; parsed once."""
    return ast.parse(path.read_text(encoding="utf-8"))
