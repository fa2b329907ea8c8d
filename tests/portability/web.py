"""Where onnxruntime-web is, which `npm ci --prefix examples/browser` installs."""

import shutil
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "browser"
RUNTIME = EXAMPLE / "node_modules" / "onnxruntime-web" / "dist"

needs_web = pytest.mark.skipif(
    not RUNTIME.is_dir(), reason="onnxruntime-web is not installed; run make portability"
)
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
