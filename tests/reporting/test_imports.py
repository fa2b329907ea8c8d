"""The packages of the extra are imported when a page is made, and never to train."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["pocketune.reporting", "pocketune.device.train.run"])
def test_neither_package_is_imported_before_a_page_is_made(module):
    code = (
        f"import sys, {module}; "
        "assert not {'jinja2', 'matplotlib', 'torch', 'onnx'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_training_does_not_import_reports():
    code = (
        "import sys, pocketune.cli.train, pocketune.device.train.run; "
        "assert not [name for name in sys.modules if name.startswith('pocketune.reporting')]"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
